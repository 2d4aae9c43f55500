"""Structured logs: for people on a terminal, JSON lines otherwise, always on stderr.

One formatter serves structlog and the standard library's logging, so that a library's line has the
same shape as ours. Every line has an ``action``, which stays the same from release to release;
those of libraries have the action ``log``. No value can begin a line of its own, and a configured
secret that got into a value is masked.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from perago.masking import escaped, mask_secrets, remember_secret, remember_spark_remote
from perago.protocol.events import WARNINGS, PhaseEvent
from perago.protocol.identity import Execution
from perago.settings import Settings

# Libraries that tell of each request, the SDKs among them where an author uses those. The Conductor
# SDK puts a process id before its names.
_CHATTY = ("conductor.client", "httpcore", "httpx", "lakefs_sdk", "py4j", "pyspark", "urllib3")
_LEVELS = {"phase_started": logging.DEBUG, **dict.fromkeys(WARNINGS, logging.WARNING)}
_log = structlog.get_logger(__name__)
# The ids of the attempt that this process runs, where it runs one at a time.
_of_process: dict[str, Any] = {}
_DEEPEST = 8
# On a terminal, the ids of an attempt are on the line that it begins with.
_FIRST_OF_ATTEMPT = "attempt_claimed"
_ONCE = frozenset({"workflow_id", "execution_id"})
_SHORT_ID = 8
_LINE_BEGINS_WITH = ("timestamp", "level", "action", "task", "task_id", "retry")
# Blocks of text that people want to read line by line.
_BLOCKS = ("exception", "trace", "stack")


@dataclass
class _Kept:
    """What ``restore_logs`` puts back."""

    level: int = logging.INFO
    handlers: list[logging.Handler] = field(default_factory=list)


_kept = _Kept()


def configure_logs(settings: Settings | None = None, stream: TextIO | None = None) -> None:
    """Route every log line of this process to stderr. Call it once, before anything is logged."""
    settings = settings or Settings()
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    remember_secrets(settings)
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(_formatter(settings, handler.stream))
    handler.addFilter(_without_requests(settings.log_level))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.captureWarnings(capture=True)
    _kept.level, _kept.handlers = level, [handler]
    restore_logs()


def keep_log_handler(handler: logging.Handler) -> None:
    """Let a handler see every line of this process from now on."""
    _kept.handlers.append(handler)
    restore_logs()


def restore_logs() -> None:
    """Put back what an author's code has taken away; what it has added stays.

    ``dictConfig`` and ``basicConfig(force=True)`` remove handlers and silence loggers, and with
    them the masking of secrets.
    """
    logging.disable(logging.NOTSET)
    root = logging.getLogger()
    for handler in _kept.handlers:
        if handler not in root.handlers:
            root.addHandler(handler)
    logging.getLogger("perago").setLevel(_kept.level)
    for name, logger in list(root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "perago":
            logger.disabled = False
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_ids_of_process,
            structlog.processors.add_log_level,
            ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_kept.level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


@contextmanager
def attempt_logs(task: str, execution: Execution) -> Iterator[None]:
    """Within the block, every line of this thread carries the ids of the attempt."""
    with structlog.contextvars.bound_contextvars(**_ids(task, execution)):
        yield


@contextmanager
def process_logs(task: str, execution: Execution) -> Iterator[None]:
    """Within the block, every line of this process carries the ids of the attempt.

    For a process that runs one attempt at a time: a thread that a body starts has no context of it.
    """
    _of_process.update(_ids(task, execution))
    try:
        yield
    finally:
        _of_process.clear()


def _ids(task: str, execution: Execution) -> dict[str, Any]:
    attempt = execution.attempt
    return {
        "task": task,
        "workflow_id": attempt.workflow_instance_id,
        "task_id": attempt.task_id,
        "retry": attempt.retry_count,
        "execution_id": execution.id,
    }


def _add_ids_of_process(_: WrappedLogger, __: str, values: EventDict) -> EventDict:
    return {**_of_process, **values}


def log_phase(event: PhaseEvent) -> None:
    """Turn a phase event into a log line; that a phase began is for debugging only."""
    details: dict[str, Any] = dict(event.details)
    if event.seconds is not None:
        details["seconds"] = round(event.seconds, 4)
    level = _LEVELS.get(event.action, logging.INFO)
    _log.log(level, event.action, phase=event.phase, **details)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines; one that cannot be formatted is not printed raw, as logging would do."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        if sys.exc_info()[0] in {BrokenPipeError, ValueError} and self.stream.closed:
            return
        safe = logging.LogRecord(
            record.name, record.levelno, record.pathname, record.lineno, "", None, None
        )
        safe.msg = f"a log line from {record.filename}:{record.lineno} cannot be formatted"
        try:
            self.stream.write(self.format(safe) + self.terminator)
            self.flush()
        except Exception:  # noqa: BLE001, S110  there is nowhere left to say it
            pass


def _formatter(settings: Settings, stream: TextIO) -> logging.Formatter:
    on_terminal = stream.isatty()
    console = settings.log_format == "console" or (settings.log_format == "auto" and on_terminal)
    colors = on_terminal and not os.environ.get("NO_COLOR")
    return ProcessorFormatter(
        foreign_pre_chain=[
            structlog.contextvars.merge_contextvars,
            _add_ids_of_process,
            structlog.processors.add_log_level,
            _name_foreign,
        ],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.StackInfoRenderer(),
            structlog.processors.EventRenamer("action"),
            PlainValues(),
            _put_first,
            *_renderers(console=console, colors=colors),
        ],
    )


def _renderers(*, console: bool, colors: bool) -> list[Processor]:
    if not console:
        return [render_json]
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors,
        event_key="action",
        sort_keys=False,
        # The default shows the local variables of every frame.
        exception_formatter=structlog.dev.plain_traceback,
    )
    return [console_values, renderer]


def remember_secrets(settings: Settings) -> None:
    """Mask the configured secrets from now on, in logs and in what is posted to Conductor."""
    pairs = (
        (settings.lakefs_access_key_id, settings.lakefs_secret_access_key),
        (settings.conductor_auth_key, settings.conductor_auth_secret),
    )
    for key, secret in pairs:
        if secret is not None:
            remember_secret(secret.get_secret_value(), key)
    if settings.spark_remote is not None:
        remember_spark_remote(settings.spark_remote.get_secret_value())


def _name_foreign(_: WrappedLogger, __: str, values: EventDict) -> EventDict:
    """A library's text is a value; the action must be one that a query can rely on."""
    record: logging.LogRecord = values["_record"]
    return {**values, "event": "log", "logger": record.name, "message": values["event"]}


def _put_first(logger: WrappedLogger, method: str, values: EventDict) -> EventDict:
    stamped = structlog.processors.TimeStamper(fmt="iso", utc=True)(logger, method, {})
    first = {"level": values.pop("level", None), "action": values.pop("action", None)}
    return {**stamped, **first, **values}


def _without_requests(level: str) -> logging.Filter:
    least = logging.INFO if level == "debug" else logging.WARNING

    class WithoutRequests(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            name = record.name.partition("] ")[2] or record.name
            return record.levelno >= least or not name.startswith(_CHATTY)

    return WithoutRequests()


class PlainValues:
    """A processor that makes values plain and masks the secrets of this process in them."""

    def __call__(self, logger: WrappedLogger, method: str, values: EventDict) -> EventDict:
        return {key: self._plain(value, 0) for key, value in values.items()}

    def _plain(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else repr(value)
        if isinstance(value, str):
            return mask_secrets(value)
        if depth < _DEEPEST and isinstance(value, Mapping):
            return {
                mask_secrets(str(key)): self._plain(item, depth + 1) for key, item in value.items()
            }
        if depth < _DEEPEST and isinstance(value, list | tuple | set | frozenset):
            return [self._plain(item, depth + 1) for item in value]
        return mask_secrets(_described(value))


def _described(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  an object that cannot be shown must not lose the line
        return f"<{type(value).__name__}>"


def render_json(_: WrappedLogger, __: str, values: EventDict) -> str:
    """One JSON object on one line; readable, but without any character that is not printable."""
    text = json.dumps(values, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def console_values(_: WrappedLogger, __: str, values: EventDict) -> EventDict:
    """Escape what could end the line or steer the terminal; a traceback becomes a marked block."""
    blocks = [str(values.pop(key)) for key in _BLOCKS if values.get(key)]
    shown: EventDict = {key: _one_line(value) for key, value in _with_short_ids(values).items()}
    lines = [line for block in blocks for line in block.rstrip("\n").split("\n")]
    if lines:
        shown["exception"] = "\n".join(f"  | {_escaped(line)}" for line in lines)
    return shown


def _with_short_ids(values: EventDict) -> EventDict:
    """Leave the ids of an attempt to the line that it begins with; the others name it shortly.

    A person reads these lines one below the other. What a program reads has all ids on each line.
    """
    if values.get("action") == _FIRST_OF_ATTEMPT or not values.get("task_id"):
        return values
    named = {**values, "task_id": str(values["task_id"])[:_SHORT_ID]}
    left_out = _ONCE if named.get("retry") else {*_ONCE, "retry"}
    order = dict.fromkeys((*_LINE_BEGINS_WITH, *named))
    return {key: named[key] for key in order if key in named and key not in left_out}


def _one_line(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return _escaped(value if isinstance(value, str) else _described(value))


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else escaped(char) for char in text)
