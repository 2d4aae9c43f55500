"""``python -m perago.spark.probe``: does somebody else's Spark have what Perago needs?

Settings are looked at, because a missing one would only show in the middle of a job; then S3A is
made to ask LakeFS for something that is not there, and a function is run on an executor.
"""

from __future__ import annotations

import importlib
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perago.servers.s3a import COMMITTER_SETTINGS
from perago.spark.artifacts import build_artifacts
from perago.spark.child import answer
from perago.spark.session import close_session, open_session

_HADOOP = "spark.hadoop.fs.s3a"
_KEYS = (f"{_HADOOP}.access.key", f"{_HADOOP}.secret.key")
_PROVIDER = f"{_HADOOP}.aws.credentials.provider"
# What S3A says when LakeFS answered: the repository of that name does not exist.
_REACHED = ("PATH_NOT_FOUND", "NoSuchBucket", "does not exist", "UnknownStoreException")
_MEANINGS = {
    "S3AFileSystem not found": "the jars of S3A (hadoop-aws …) are not on its class path",
    "AccessDenied": "LakeFS refused the credentials of fs.s3a",
    "InvalidAccessKeyId": "LakeFS does not know the access key of fs.s3a",
    # Not the number alone: it is in one of a hundred request ids, and in a bucket's random name.
    "Status Code: 403": "LakeFS refused the credentials of fs.s3a",
    "UnknownHost": "it cannot find the host of fs.s3a.endpoint",
    "Connection refused": "it cannot reach fs.s3a.endpoint",
}
_LONGEST_REASON = 300
_DEFAULT_PORT = 15002
_KNOCK_SECONDS = 10.0


def missing_settings(get: Callable[[str], str | None]) -> Iterator[str]:
    """The settings that are absent or wrong, each with what it must be."""
    if not get(f"{_HADOOP}.endpoint"):
        yield f"{_HADOOP}.endpoint must be the address of LakeFS's S3 gateway"
    if get(f"{_HADOOP}.path.style.access") != "true":
        yield f"{_HADOOP}.path.style.access must be true"
    if not all(get(key) for key in _KEYS) and not get(_PROVIDER):
        yield f"{' and '.join(_KEYS)} (or {_PROVIDER}) must give LakeFS credentials"
    for key, value in COMMITTER_SETTINGS.items():
        if get(key) != value:
            yield f"{key} must be {value}"


def meaning(reason: str) -> str | None:
    """What a failed read through S3A says about the server; None when it reached LakeFS."""
    said = _without_java(reason)
    known = next((text for sign, text in _MEANINGS.items() if sign in said), None)
    if known is not None:
        return known
    return None if any(sign in said for sign in _REACHED) else said[:_LONGEST_REASON]


def _handle(request: dict[str, Any]) -> dict[str, Any]:
    _knock(request["remote"])
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(
            request["remote"],
            uuid.uuid4().hex,
            artifacts=lambda: build_artifacts((), Path(folder)),
        )
        try:
            problems = list(missing_settings(lambda key: session.conf.get(key, None)))
            # Without the settings the two others could only repeat it, at length.
            problems = problems or [*_read_nothing(session), *_run_a_function(session)]
        finally:
            close_session(session)
    return {"problems": problems}


def _knock(remote: str) -> None:
    """Fail at once where nobody listens: the client would go on trying for most of a minute."""
    parts = urlsplit(remote)
    host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
    try:
        socket.create_connection((host, port), timeout=_KNOCK_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"{host}:{port}: {error.strerror or error}") from None


def _read_nothing(session: Any) -> list[str]:
    try:
        session.read.text(f"s3a://perago-probe-{uuid.uuid4().hex[:8]}/main/nothing").count()
    except Exception as error:  # noqa: BLE001  every failure of a job says something here
        problem = meaning(str(error))
        return [f"reading through s3a:// fails: {problem}"] if problem else []
    return []


def _run_a_function(session: Any) -> list[str]:
    def import_perago(batches: Any) -> Any:
        # What moves objects, by name: it runs over there, where this package has no layers.
        importlib.import_module("perago.lakefs.objects")
        yield from batches

    try:
        session.range(1).mapInArrow(import_perago, "id long").collect()
    except Exception as error:  # noqa: BLE001  every failure of a job says something here
        return [f"a Python function cannot run on its executors: {_last_line(str(error))}"]
    return []


def _without_java(text: str) -> str:
    """What was said, without the stack trace that names half of Spark."""
    return text.partition("JVM stacktrace")[0].strip()


def _last_line(text: str) -> str:
    """The end of a Python traceback."""
    lines = _without_java(text).splitlines()
    return lines[-1].strip()[:_LONGEST_REASON] if lines else "no reason given"


if __name__ == "__main__":
    answer(_handle)
