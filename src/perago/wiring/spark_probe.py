"""``python -m perago.wiring.spark_probe``: check that an external Spark has what Perago needs.

It checks the settings, because a missing one would show only in the middle of a job, and looks for
a path in LakeFS that does not exist, through S3A. Neither needs an executor: a worker also starts
while its Spark is busy. On request, it runs a Python function on an executor as well.
"""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from perago.errors import ConfigurationError
from perago.servers.s3a import COMMITTER_SETTINGS
from perago.spark import child
from perago.spark.session import SHARES_MODULES, close_session, open_session
from perago.spark.shipment import Shipment
from perago.text import shorten

_HADOOP = "spark.hadoop.fs.s3a"
_KEYS = (f"{_HADOOP}.access.key", f"{_HADOOP}.secret.key")
_PROVIDER = f"{_HADOOP}.aws.credentials.provider"
# What S3A reports when LakeFS responded: the repository of that name does not exist.
_REACHED = ("PATH_NOT_FOUND", "NoSuchBucket", "does not exist", "UnknownStoreException")
_MEANINGS = {
    "S3AFileSystem not found": "the jars of S3A (hadoop-aws …) are not on its class path",
    "AccessDenied": "LakeFS refused the credentials of fs.s3a",
    "InvalidAccessKeyId": "LakeFS does not know the access key of fs.s3a",
    # Not the number alone: a random request id or bucket name may contain it.
    "Status Code: 403": "LakeFS refused the credentials of fs.s3a",
    "UnknownHost": "it cannot resolve the host of fs.s3a.endpoint",
    "Connection refused": "it cannot reach fs.s3a.endpoint",
}
_LONGEST_REASON = 300
_DEFAULT_PORT = 15002
_CONNECT_SECONDS = 10.0
# A closed port is told at once; a server that has just started loads S3A's classes first.
_SETTINGS_SECONDS = 60.0
# A cluster may have to start its executors for the first function.
_JOB_SECONDS = 180.0


def missing_settings(get: Callable[[str], str | None]) -> Iterator[str]:
    """Yield each setting that is absent or wrong, with what it must be."""
    if not get(f"{_HADOOP}.endpoint"):
        yield f"{_HADOOP}.endpoint must be the address of LakeFS's S3 gateway"
    if get(f"{_HADOOP}.path.style.access") != "true":
        yield f"{_HADOOP}.path.style.access must be true"
    if not all(get(key) for key in _KEYS) and not get(_PROVIDER):
        yield f"{' and '.join(_KEYS)} (or {_PROVIDER}) must give LakeFS credentials"
    for key, value in COMMITTER_SETTINGS.items():
        if get(key) != value:
            yield f"{key} must be {value}"


def explain_read_failure(reason: str) -> str | None:
    """Explain a failed read through S3A; return None when the read reached LakeFS."""
    message = _without_java(reason)
    known = next((text for sign, text in _MEANINGS.items() if sign in message), None)
    if known is not None:
        return known
    return None if any(sign in message for sign in _REACHED) else shorten(message, _LONGEST_REASON)


def probe(remote: str, *, with_job: bool = False) -> list[str]:
    """Return what a Spark lacks; ``with_job`` also runs a small job, which may wait.

    Raises ``BackendUnavailableError`` if it does not answer.
    """
    seconds = _JOB_SECONDS if with_job else _SETTINGS_SECONDS
    request = {"remote": remote, "with_job": with_job}
    reply = child.ask(sys.modules[__name__], request, seconds=seconds)
    problems: list[str] = reply["problems"]
    return problems


def _handle(request: dict[str, Any]) -> dict[str, Any]:
    _check_port(request["remote"])
    session = open_session(request["remote"], uuid.uuid4().hex)
    try:
        problems = list(missing_settings(lambda key: session.conf.get(key, None)))
        # Without the settings, the other checks fail for the same reason.
        problems = problems or _check_s3a(session)
        if request["with_job"] and not problems:
            problems = _check_functions(session)
    finally:
        close_session(session)
    return {"problems": problems}


def _check_port(remote: str) -> None:
    """Fail at once when the port is closed: the client would retry for most of a minute."""
    parts = urlsplit(remote)
    host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"{host}:{port}: {error.strerror or error}") from None


def _check_s3a(session: Any) -> list[str]:
    try:
        # Asked for the schema, the driver looks for the path and runs no job.
        _ = session.read.text(f"s3a://perago-probe-{uuid.uuid4().hex[:8]}/main/nothing").schema
    except Exception as error:  # noqa: BLE001  a job may raise errors of several libraries
        problem = explain_read_failure(str(error))
        return [f"reading through s3a:// fails: {problem}"] if problem else []
    return []


def _check_functions(session: Any) -> list[str]:
    def import_object_client(batches: Any) -> Any:
        # On the executor: the client with which a transfer's functions move objects.
        import perago.lakefs.objects  # noqa: F401

        yield from batches

    if session.conf.get(SHARES_MODULES, "false") != "true":
        Shipment().content(shares=False).send(session)
    try:
        session.range(1).mapInArrow(import_object_client, "id long").collect()
    except ConfigurationError as error:  # of another version of Python
        return [f"{error}. {error.hint}"]
    except Exception as error:  # noqa: BLE001  a job may raise errors of several libraries
        return [f"a Python function cannot run on its executors: {_last_line(str(error))}"]
    return []


def _without_java(text: str) -> str:
    """Remove the JVM's stack trace from a message."""
    return text.partition("JVM stacktrace")[0].strip()


def _last_line(text: str) -> str:
    """Return the last line of a Python traceback."""
    lines = _without_java(text).splitlines()
    return shorten(lines[-1].strip(), _LONGEST_REASON) if lines else "no reason given"


if __name__ == "__main__":
    child.serve(_handle)
