"""Send modules and files to a server once, and not with each session.

The first session that sends something has the server keep a copy of itself: the *base session*.
The sessions after it, of every process with the same content, begin as clones of that one: they
have its files and its interpreter, and nothing is sent again. The id of a base session is derived
from the digest of its content, so that every process finds it without asking another.

A base session is made by one request, from a session that has everything: none is ever half
complete, and of two processes that make it at the same moment one is first. The server closes it
when no session began from it for an hour (its session timeout), and forgets it when it is started
anew; then the next session sends everything again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any

import structlog

from perago.spark.session import SHARES_MODULES, read_setting
from perago.spark.shipment import Content, Shipment

# The digest of what a session has got. It is set last, and a clone has it from its base session.
CONTENT_SETTING = "spark.perago.content"
_NAMESPACE = uuid.UUID("f1b9a1f2-6b3e-4a55-9a0b-0e7a3c1d2f64")
# The server copies the files, and unpacks the archives of the settings.
_CLONE_SECONDS = 300.0
# The server never takes the id of a closed session again, so base sessions have numbers. They begin
# anew each day: a new process asks for the closed ones one by one.
_MOST_A_DAY = 64

_log = structlog.get_logger(__name__)


class Cloning(Enum):
    """How a request for a clone ended."""

    DONE = auto()
    NO_SOURCE = auto()
    SOURCE_CLOSED = auto()
    TARGET_EXISTS = auto()
    TARGET_CLOSED = auto()
    UNSUPPORTED = auto()
    # For another reason of the server's: a full disk, or a source that was closed meanwhile.
    FAILED = auto()


# What the server says; all of these have the status of an internal error.
_SIGNS = {
    "INVALID_HANDLE.SESSION_NOT_FOUND": Cloning.NO_SOURCE,
    "INVALID_HANDLE.SESSION_CLOSED": Cloning.SOURCE_CLOSED,
    "TARGET_SESSION_ID_ALREADY_EXISTS": Cloning.TARGET_EXISTS,
    "TARGET_SESSION_ID_ALREADY_CLOSED": Cloning.TARGET_CLOSED,
}


class BaseSessions:
    """Begins the sessions of one process, on every server that it uses; for one thread."""

    def __init__(self, shipment: Shipment) -> None:
        self._shipment = shipment
        # Of each server, by its connection string, whether it shares our modules.
        self._sharing: dict[str, bool] = {}
        self._without_clones: set[str] = set()
        # The ids of base sessions that a server closed.
        self._closed: set[str] = set()

    def begin(self, remote: str, session: Any) -> None:
        """Give a session what its executors lack; it must not have sent a request yet."""
        shares = self._shares_modules(remote)
        content = self._shipment.content(shares=shares)
        if content.is_empty:
            return
        self._clone_base(remote, session, content)
        # What was not cloned is made by this request.
        if session.conf.get(CONTENT_SETTING, "") == content.digest:
            return
        _send(session, content)
        # Not if a file changed meanwhile: it is unknown which of both was sent.
        if self._shipment.content(shares=shares).digest == content.digest:
            self._keep_base(remote, session, content)

    def _shares_modules(self, remote: str) -> bool:
        if remote not in self._sharing:
            self._sharing[remote] = read_setting(remote, SHARES_MODULES, "false") == "true"
        return self._sharing[remote]

    def _clone_base(self, remote: str, session: Any, content: Content) -> None:
        """Make the session a clone of the base session with this content, if there is one."""
        own_id = session.client._session_id
        self._try_bases(
            remote,
            content,
            lambda base_id: self._clone(remote, session, base_id, own_id),
            Cloning.SOURCE_CLOSED,
        )

    def _keep_base(self, remote: str, session: Any, content: Content) -> None:
        """Make the base session with this content, as a clone of the session that got it."""
        own_id = session.client._session_id
        self._try_bases(
            remote,
            content,
            lambda base_id: self._clone(remote, session, own_id, base_id),
            Cloning.TARGET_CLOSED,
        )

    def _try_bases(
        self, remote: str, content: Content, ask: Callable[[str], Cloning], closed: Cloning
    ) -> None:
        """Ask with one id of a base session after the other, until one is not closed."""
        for base_id in self._base_ids(remote, content):
            if ask(base_id) is not closed:
                return
            self._closed.add(base_id)

    def _base_ids(self, remote: str, content: Content) -> Iterator[str]:
        """Yield the ids that a base session with this content may have, in the order to take."""
        day = datetime.now(UTC).date().isoformat()
        for number in range(_MOST_A_DAY):
            if remote in self._without_clones:
                return
            base_id = str(uuid.uuid5(_NAMESPACE, f"{content.digest} {day} {number}"))
            if base_id not in self._closed:
                yield base_id

    def _clone(self, remote: str, session: Any, source: str, target: str) -> Cloning:
        ended, reason = clone(session.client, source, target)
        if ended is Cloning.UNSUPPORTED:
            self._without_clones.add(remote)
            _log.info("spark_clones_unsupported", effect="each session sends the modules")
        elif ended is Cloning.FAILED:
            _log.warning("spark_clone_failed", reason=reason)
        return ended


def _send(session: Any, content: Content) -> None:
    began = time.monotonic()
    content.send(session)
    session.conf.set(CONTENT_SETTING, content.digest)
    _log.info("spark_modules_sent", seconds=round(time.monotonic() - began, 3))


def clone(client: Any, source: str, target: str) -> tuple[Cloning, str]:
    """Ask a client's server for a clone of a session; return how that ended, and the reason.

    Not pyspark's own ``cloneSession``: it makes a client without our retries and time limits, for
    a session that cannot be stopped. Raises what the client raises when the server does not answer.
    """
    import grpc
    import pyspark.sql.connect.proto as messages

    request = messages.CloneSessionRequest(
        session_id=source, client_type=client._builder.userAgent, new_session_id=target
    )
    if client._user_id:
        request.user_context.user_id = client._user_id
    try:
        for attempt in client._retrying():
            with attempt:
                client._stub.CloneSession(
                    request, metadata=client._builder.metadata(), timeout=_CLONE_SECONDS
                )
    except grpc.RpcError as error:
        reason = error.details() or ""
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return Cloning.UNSUPPORTED, reason
        if error.code() is grpc.StatusCode.INTERNAL:
            known = (ended for sign, ended in _SIGNS.items() if sign in reason)
            return next(known, Cloning.FAILED), reason
        client._handle_error(error)
    return Cloning.DONE, ""
