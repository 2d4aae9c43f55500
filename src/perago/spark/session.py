"""Open and end the Spark Connect session of an execution.

The session's id is derived from the execution's, so that another process (the supervisor, after it
has killed the executor) can find the session and end its operations. The server never accepts the
id of a released session again: an ended execution cannot start new operations.
"""

from __future__ import annotations

import atexit
import os
import socket
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perago.spark.caching import SessionCache, free_cached
from perago.spark.errors import tell_mismatch
from perago.spark.operations import end_operations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Set by a worker on a managed server in local mode: functions run in the worker's own interpreter,
# with the worker's own modules.
SHARES_MODULES = "spark.perago.sharesModules"
# A setting of a session that Spark's scheduler reads for each of the session's jobs.
POOL_SETTING = "spark.scheduler.pool"
# The server finds a session by its user and its id; both must be the same in every process.
_USER = "perago"
_NAMESPACE = uuid.UUID("6f1c4f0e-8c5c-4b1b-9c53-0d9f4b1f6f5e")
# Of pyspark's own client, in whose requests perago.retry has no part: a job of hours depends on
# them, so it waits longer. Its default policy would retry for ten minutes against a dead server.
_TRIES = 8
_LONGEST_PAUSE_MS = 4000
# A job may take hours, so no request has a deadline; unanswered pings detect a server that hangs.
# The server closes connections that ping more often than every five minutes.
_KEEP_ALIVE = (
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)
# Less than the time in which a supervisor waits for an interruption.
_END_SECONDS = 20.0
_PROBE_SECONDS = 2.0
_NO_SESSION = ("SESSION_NOT_FOUND", "SESSION_CLOSED")


def session_id(execution_id: str) -> str:
    """Derive the UUID of an execution's session."""
    try:
        return str(uuid.UUID(execution_id))
    except ValueError:
        return str(uuid.uuid5(_NAMESPACE, execution_id))


def database_of(session: str) -> str:
    """Name the database in which a session may create tables, from the session's id."""
    return f"perago_{session.replace('-', '')}"


def drop_database(database: str) -> str:
    """Write the statement that drops the names of a session's tables; their files stay."""
    return f"DROP DATABASE IF EXISTS {database} CASCADE"


def pool_name() -> str:
    """Name the scheduler's pool of this process, which runs one attempt at a time.

    Not of the attempt: the server keeps a pool for good, and looks at all of them for each task.
    """
    return f"perago-{socket.gethostname()}-{os.getpid()}"


def session_remote(remote: str, execution_id: str) -> str:
    """Build the connection string of an execution's session."""
    head, parameters = _split(remote)
    parameters.setdefault("user_id", _USER)
    parameters["session_id"] = session_id(execution_id)
    return f"{head}/;" + ";".join(f"{key}={value}" for key, value in parameters.items())


def _split(remote: str) -> tuple[str, dict[str, str]]:
    head, _, rest = remote.partition("/;")
    pairs = (item.partition("=") for item in rest.split(";") if item)
    return head.rstrip("/"), {key: value for key, _, value in pairs}


def open_session(
    remote: str, execution_id: str, *, begin: Callable[[str, Any], None] | None = None
) -> SparkSession:
    """Open the session of an execution; the caller must end it or close it.

    ``begin`` gets the session before its first request, to give it what its executors lack.
    """
    session = _connect(remote, execution_id)
    try:
        SessionCache(session)
        tell_mismatch(session)
        if begin is not None:
            begin(remote, session)
        # Not before: another session may begin as a copy of this one.
        session.conf.set(POOL_SETTING, pool_name())
    except BaseException:
        with suppress(Exception):  # the reason why it could not be opened says more
            close_session(session)
        raise
    _make_active(session)
    return session


def close_session(session: Any) -> None:
    """Close a session, and make a second close of its client do nothing.

    pyspark closes the client again when the session is garbage-collected, in the thread that runs
    the collection, and joins a thread pool that all sessions share. When gRPC was just starting
    that thread for the pool, each waited for the other: a deadlock that was seen.
    """
    try:
        session.stop()
    finally:
        forget(session)


def is_gone(session: Any) -> bool:
    """Whether nothing listens any more where the session's server was.

    The client would find out too, after most of a minute of retries for each request.
    """
    host, _, port = session.client._builder.endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):
        return False  # a name or a route of today's network, about which the client may know more
    return False


def end_session(session: Any) -> None:
    """End the operations of a session, free what it cached and close it; never raises."""
    if is_gone(session):
        # Not close(), which waits for requests that no server answers.
        session.client._channel.close()
        forget(session)
        return
    with suppress(Exception):
        end_operations(session, _END_SECONDS)
        free_cached(session)
    with suppress(Exception):
        close_session(session)


def forget(session: Any) -> None:
    """Let go of a session that is over.

    The client's close, which garbage collection calls, does nothing then, and pyspark does not
    give the session to code that asks for the active one. Nor does the client stay until the
    process ends, and ask its server for something then, which takes minutes if the server is gone.
    """
    from pyspark.sql.connect.session import SparkSession

    client = session.client
    atexit.unregister(client._cleanup_ml_cache)
    client._closed = True
    client.close = _nothing
    if SparkSession._default_session is session:
        SparkSession._default_session = None
    if getattr(SparkSession._active_session, "session", None) is session:
        SparkSession._active_session.session = None


def _make_active(session: Any) -> None:
    """Make a session the one that ``SparkSession.active()`` and ``getOrCreate()`` give a body.

    pyspark does so only if there was none before.
    """
    from pyspark.sql.connect.session import SparkSession

    SparkSession._default_session = SparkSession._active_session.session = session


def _nothing() -> None:
    return


def _connect(remote: str, execution_id: str) -> Any:
    """Create a client with bounded retries; no request is sent yet."""
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    # What SparkSession.builder.remote() does; that one takes no options for the channel.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    channel = DefaultChannelBuilder(session_remote(remote, execution_id), list(_KEEP_ALIVE))
    session = SparkSession.builder.channelBuilder(channel).create()
    policy = DefaultPolicy(max_retries=_TRIES, max_backoff=_LONGEST_PAUSE_MS)
    session.client.set_retry_policies([policy])
    return session


def read_setting(remote: str, key: str, default: str) -> str:
    """Read a setting of a server, in a session of our own."""
    session = _connect(remote, uuid.uuid4().hex)
    try:
        found: str = session.conf.get(key, default)
    finally:
        close_session(session)
    return found


def interrupt(remote: str, execution_id: str, *, alone: bool = False) -> int:
    """End the operations of an execution's session and release it; return how many ran.

    A session that does not exist any more counts as ended. ``alone`` says that no other session
    uses the server: then everything that is cached there is freed, because it is not
    known any more what this session cached.
    """
    from pyspark.errors.exceptions.connect import SparkConnectException

    session = _connect(remote, execution_id)
    try:
        # In this order: the server may fail to release a session with running operations.
        ended = end_operations(session, _END_SECONDS)
        session.client.release_session()
    except SparkConnectException as error:
        if any(sign in str(error) for sign in _NO_SESSION):
            return 0
        raise
    finally:
        session.client.close()
        forget(session)
        with suppress(Exception):
            _tidy(remote, session_id(execution_id), alone=alone)
    return ended


def _tidy(remote: str, ended: str, *, alone: bool) -> None:
    """Remove what an ended session left on the server, from a session of our own."""
    session = _connect(remote, uuid.uuid4().hex)
    try:
        session.sql(drop_database(database_of(ended)))
        if alone:
            session.catalog.clearCache()
    finally:
        close_session(session)
