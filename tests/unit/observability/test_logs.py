"""Log lines as another process sees them: on a pipe and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Ended, environment, run_code

SECRET = 'wJalr/"XUtn+FEMI é'
PREAMBLE = f"""
import logging, sys, warnings
import structlog
from pydantic import SecretStr
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Attempt, Claim, Execution
from perago.settings import Settings
from perago.observability.logs import attempt_logs, configure_logs, log_phase, restore_logs
SECRET = {SECRET!r}
def configure(**more):
    configure_logs(Settings(
        lakefs_access_key_id="AKIA", lakefs_secret_access_key=SecretStr(SECRET), **more
    ))
log = structlog.get_logger("perago.test")
"""


def run(script: str) -> Ended:
    ended = run_code(PREAMBLE + textwrap.dedent(script), folder=Path.cwd())
    assert ended.code == 0, ended.err
    return ended


def lines_of(script: str) -> list[dict[str, Any]]:
    done = run(script)
    assert done.out == ""
    return [json.loads(line) for line in done.err.splitlines()]


def console_lines(script: str) -> list[str]:
    return run(script).err.splitlines()


def test_on_a_pipe_each_line_is_one_json_object_with_an_action() -> None:
    (line,) = lines_of("""
        configure()
        log.info("attempt_claimed", objects=3, ratio=float("nan"), path=["a", {"b": None}])
    """)
    assert list(line)[:3] == ["timestamp", "level", "action"]
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "action": "attempt_claimed",
        "objects": 3,
        "ratio": "nan",
        "path": ["a", {"b": None}],
    }


def test_on_a_terminal_lines_are_for_people() -> None:
    leader, follower = pty.openpty()
    try:
        subprocess.run(
            [
                sys.executable,
                "-c",
                PREAMBLE + "configure()\nlog.info('attempt_claimed', objects=3)",
            ],
            env=environment(),
            timeout=60,
            check=True,
            stdout=follower,
            stderr=follower,
        )
        shown = os.read(leader, 10_000).decode()
    finally:
        os.close(follower)
        os.close(leader)
    assert "attempt_claimed" in shown
    assert "objects=3" in shown
    assert not shown.startswith("{")


def test_every_line_of_an_attempt_carries_its_ids_also_those_of_libraries() -> None:
    ours, foreign, after = lines_of("""
        configure()
        attempt = Attempt("wf-1", "task-1", 2, "ref", 1, 0)
        with attempt_logs("clean", Execution(Claim(attempt, "token"), "exec-1")):
            log.info("phase_ended")
            logging.getLogger("author").warning("disk %s", "slow")
        log.info("idle")
    """)
    ids = {
        "task": "clean",
        "workflow_id": "wf-1",
        "task_id": "task-1",
        "retry": 2,
        "execution_id": "exec-1",
    }
    assert ids.items() <= ours.items()
    assert ids.items() <= foreign.items()
    assert not ids.keys() & after.keys()
    assert (foreign["action"], foreign["logger"], foreign["message"]) == (
        "log",
        "author",
        "disk slow",
    )


def test_in_a_process_of_one_attempt_its_ids_are_on_the_lines_of_every_thread() -> None:
    ours, foreign, after = lines_of("""
        from threading import Thread
        from perago.observability.logs import process_logs
        configure()

        def run(target, *args):
            thread = Thread(target=target, args=args)
            thread.start()
            thread.join()

        attempt = Attempt("wf-1", "task-1", 2, "ref", 1, 0)
        with process_logs("clean", Execution(Claim(attempt, "token"), "exec-1")):
            run(log.info, "phase_ended")
            run(logging.getLogger("author").warning, "disk slow")
        run(log.info, "idle")
    """)
    for line in (ours, foreign):
        assert (line["task_id"], line["execution_id"]) == ("task-1", "exec-1")
    assert "task_id" not in after


def test_an_author_s_own_info_lines_are_shown_and_chatty_libraries_are_not() -> None:
    lines = lines_of("""
        configure()
        for name in ("my_tasks", "httpx", "urllib3.connectionpool", "[7] conductor.client.http"):
            logging.getLogger(name).info("hello")
            logging.getLogger(name).error("trouble")
    """)
    assert [line["logger"] for line in lines if line["message"] == "hello"] == ["my_tasks"]
    assert sum(line["message"] == "trouble" for line in lines) == 4


def test_that_a_phase_began_is_said_at_debug_level_only() -> None:
    script = """
        configure(log_level={level!r})
        log_phase(PhaseEvent("phase_started", "body"))
        log_phase(PhaseEvent("phase_ended", "body", 0.12345678, {{"objects": 2}}))
    """
    (only,) = lines_of(script.format(level="info"))
    assert (only["action"], only["phase"], only["seconds"], only["objects"]) == (
        "phase_ended",
        "body",
        0.1235,
        2,
    )
    started, _ = lines_of(script.format(level="debug"))
    assert (started["action"], started["level"]) == ("phase_started", "debug")


def test_on_the_console_the_ids_of_an_attempt_are_on_its_first_line_only() -> None:
    claimed, ended, failed, idle = console_lines("""
        configure(log_format="console")
        for retry in (0, 2):
            attempt = Attempt("workflow-1", "0123456789abcdef", retry, "ref", 1, 0)
            with attempt_logs("clean", Execution(Claim(attempt, "token"), "execution-1")):
                if not retry:
                    log.info("attempt_claimed")
                    log.info("attempt_completed", seconds=8.1, commit="3f2a", result='{"kept": 5}')
                else:
                    log.error("attempt_failed", reason="KeyError: 'amount'")
        log.info("worker_stopped", task_id=None)
    """)
    for text in ("workflow_id=workflow-1", "task_id=0123456789abcdef", "execution_id=execution-1"):
        assert text in claimed
    # What an attempt came to is one line, with what a person looks for.
    assert ended.endswith(
        "task=clean task_id=01234567 seconds=8.1 commit=3f2a result='{\"kept\": 5}'"
    )
    assert "task=clean task_id=01234567 retry=2" in failed
    assert "workflow" not in failed + idle


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_value_can_begin_a_line_or_steer_a_terminal(log_format: str) -> None:
    text = run(f"""
        configure(log_format={log_format!r})
        evil = "a\\n2030 [info] forged\\r\\x1b[2J\\x9b\\u2028\\u202e\\x7f"
        class Odd:
            def __repr__(self): return evil
        class Worse:
            def __repr__(self): raise RuntimeError
        log.info("planned", value=evil, nested={{evil: [evil]}}, odd=Odd(), worse=Worse())
        log.info(evil)
        logging.getLogger(evil).warning(evil)
    """).err
    assert text.count("\n") == 3
    assert text.replace("\n", "").isprintable()
    if log_format == "json":
        first, second, third = map(json.loads, text.splitlines())
        assert first["value"].startswith("a\n2030")
        assert first["worse"] == "<Worse>"
        assert second["action"].startswith("a\n2030")
        assert third["message"].startswith("a\n2030")


def test_a_traceback_on_the_console_is_a_block_whose_lines_are_marked() -> None:
    first, *block = console_lines("""
        configure(log_format="console")
        try:
            raise ValueError("x\\n2030-01-01 [info] forged\\x1b[2J")
        except ValueError:
            log.exception("attempt_failed", trace="second\\nblock")
    """)
    assert "attempt_failed" in first
    assert block
    assert all(line.startswith("  | ") for line in block)
    assert "  | 2030-01-01 [info] forged\\x1b[2J" in block
    assert block[-2:] == ["  | second", "  | block"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_configured_secret_is_masked_wherever_it_appears(log_format: str) -> None:
    text = run(f"""
        import base64, json
        from urllib.parse import quote
        configure(log_format={log_format!r})
        class Odd:
            def __repr__(self): return f"Odd({{SECRET!r}})"
        basic = base64.b64encode(f"AKIA:{{SECRET}}".encode()).decode()
        log.info("a", value=SECRET, nested=[{{SECRET: (SECRET,)}}], odd=Odd(), header=basic)
        log.info(f"b {{SECRET}}", url="http://h/?q=" + quote(SECRET, safe=""))
        log.info("c", payload=json.dumps({{"s": SECRET}}))
        logging.getLogger("lib").error("token=%s", SECRET)
        try:
            raise RuntimeError(SECRET)
        except RuntimeError:
            log.exception("d")
            logging.getLogger("lib").exception("e")
        warnings.warn(SECRET)
    """).err
    assert text.count("********") >= 11
    for spelling in ("wJalr", "XUtn", "FEMI", "QUtJQTp3SmFsci"):
        # The source line of the traceback names the variable, never its value.
        assert spelling not in text, text


def test_a_line_that_cannot_be_formatted_does_not_show_its_arguments() -> None:
    (line,) = lines_of("configure()\nlogging.getLogger('lib').error('%d', SECRET)")
    assert line["message"].endswith("cannot be formatted")
    assert line["logger"] == "lib"


def test_logs_can_be_configured_again_without_doubling_lines() -> None:
    lines = lines_of("configure()\nconfigure()\nlog.info('once')\nlogging.error('once')")
    assert len(lines) == 2


TAKEN_AWAY = {
    "dictConfig": "import logging.config; logging.config.dictConfig({'version': 1})",
    "basicConfig": "logging.basicConfig(level='ERROR', filename='/dev/null', force=True)",
    "disable": "logging.disable()",
    "structlog": "structlog.reset_defaults()",
}


@pytest.mark.parametrize("code", TAKEN_AWAY.values(), ids=list(TAKEN_AWAY))
def test_what_a_module_of_an_author_takes_away_is_put_back(code: str) -> None:
    (line,) = lines_of(f"""
        configure()
        logging.getLogger("perago.worker")
        {code}
        restore_logs()
        restore_logs()
        log.info("worker_started", secret=SECRET)
    """)
    assert line["action"] == "worker_started"
    assert line["secret"] == "********"
