"""One Spark Connect session per execution.

Its id comes from the execution's, so that somebody else (the supervisor, when it has killed the
executor) can find the session and end what runs in it. A released session's id is never taken
again by the server: an execution that was ended this way cannot begin anew.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perago.spark.artifacts import INTERPRETER, INTERPRETER_SETTING, Artifacts
from perago.spark.operations import end_operations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Set by a worker on the server it starts in local mode: its functions run in the worker's own
# interpreter, with the worker's own modules.
SHARES_MODULES = "spark.perago.sharesModules"
# The server's sessions belong to a user; with another name nobody would find ours again.
_USER = "perago"
_NAMESPACE = uuid.UUID("6f1c4f0e-8c5c-4b1b-9c53-0d9f4b1f6f5e")
# The client's own policy would wait for ten minutes for a server that died.
_TRIES = 8
_LONGEST_PAUSE_MS = 4000
# A job may take hours, so no request has a deadline: a server that hangs is noticed by a ping that
# it does not answer. The server takes pings more often than every five minutes for an attack.
_KEEP_ALIVE = (
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)
# Within what a supervisor waits for an interruption as a whole.
_END_SECONDS = 20.0
_NO_SESSION = ("SESSION_NOT_FOUND", "SESSION_CLOSED")


def session_id(execution_id: str) -> str:
    """The UUID of an execution's session."""
    try:
        return str(uuid.UUID(execution_id))
    except ValueError:
        return str(uuid.uuid5(_NAMESPACE, execution_id))


def session_remote(remote: str, execution_id: str) -> str:
    """The connection string of an execution's session."""
    head, parameters = _split(remote)
    parameters.setdefault("user_id", _USER)
    parameters["session_id"] = session_id(execution_id)
    return f"{head}/;" + ";".join(f"{key}={value}" for key, value in parameters.items())


def _split(remote: str) -> tuple[str, dict[str, str]]:
    head, _, rest = remote.partition("/;")
    pairs = (item.partition("=") for item in rest.split(";") if item)
    return head.rstrip("/"), {key: value for key, _, value in pairs}


def open_session(
    remote: str, execution_id: str, *, artifacts: Callable[[], Artifacts] | None = None
) -> SparkSession:
    """Connect as an execution; whoever opened it calls :func:`close_session`.

    ``artifacts`` is asked for what executors lack, unless the server shares our modules.
    """
    session = _connect(remote, execution_id)
    try:
        session.addTag(f"perago-{execution_id}")
        if artifacts is not None and session.conf.get(SHARES_MODULES, "false") != "true":
            _ship(session, artifacts())
    except BaseException:
        close_session(session)
        raise
    return session


def close_session(session: Any) -> None:
    """Close a session for good: whatever happens to the object later, happens without effect.

    pyspark closes a client once more when its session is garbage-collected, in whatever thread
    that happens to be, and there joins a pool of threads that all sessions share. Seen in a
    thread that gRPC was just starting for that pool: each waited for the other, for ever.
    """
    try:
        session.stop()
    finally:
        forget(session)


def end_session(session: Any) -> None:
    """End what runs in a session, and the session, as well as that can be done; never raises."""
    with suppress(Exception):
        end_operations(session, _END_SECONDS)
    with suppress(Exception):
        close_session(session)


def forget(session: Any) -> None:
    """Leave nothing to do for the garbage collector."""
    session.client.close = _nothing


def _nothing() -> None:
    return


def _connect(remote: str, execution_id: str) -> Any:
    """A client whose waiting is bounded; nothing is asked of the server yet."""
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    # As SparkSession.builder.remote() does it, which takes no options for the channel.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    channel = DefaultChannelBuilder(session_remote(remote, execution_id), list(_KEEP_ALIVE))
    session = SparkSession.builder.channelBuilder(channel).create()
    policy = DefaultPolicy(max_retries=_TRIES, max_backoff=_LONGEST_PAUSE_MS)
    session.client.set_retry_policies([policy])
    return session


def _ship(session: SparkSession, artifacts: Artifacts) -> None:
    session.addArtifacts(artifacts.archive_uri, archive=True)
    session.addArtifacts(str(artifacts.modules), pyfile=True)
    session.conf.set(INTERPRETER_SETTING, INTERPRETER)


def interrupt(remote: str, execution_id: str) -> int:
    """End everything that runs in an execution's session, and the session; how much ran.

    Nothing may be there any more, which is what was wanted.
    """
    from pyspark.errors.exceptions.connect import SparkConnectException

    session = _connect(remote, execution_id)
    try:
        # In this order: the server stumbles over a session whose operations have not ended yet.
        ended = end_operations(session, _END_SECONDS)
        session.client.release_session()
    except SparkConnectException as error:
        if any(sign in str(error) for sign in _NO_SESSION):
            return 0
        raise
    finally:
        session.client.close()
        forget(session)
    return ended
