"""Sessions that begin as clones of a base session: what is sent once, and when again."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql.connect.client.retries import DefaultPolicy, Retrying
from structlog.testing import capture_logs

from perago.spark import base as module
from perago.spark.base import CONTENT_SETTING, BaseSessions, Cloning, clone
from perago.spark.session import SHARES_MODULES

REMOTE = "sc://localhost:1"


class Refused(grpc.RpcError):  # type: ignore[misc]
    """An answer that is an error."""

    def __init__(self, text: str, code: grpc.StatusCode = grpc.StatusCode.INTERNAL) -> None:
        super().__init__(text)
        self._text, self._code = text, code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._text

    def trailing_metadata(self) -> None:
        """No advice about a retry."""


@dataclass
class Server:
    """Sessions with their settings and files, as a Connect server has them."""

    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    sharing: bool = False
    # What happens before a request for a clone is answered.
    before_clone: Callable[[], None] = lambda: None
    lost_replies: int = 0
    uploads: int = 0

    def session(self, name: str) -> dict[str, Any]:
        if name in self.closed:
            raise Refused("[INVALID_HANDLE.SESSION_CLOSED] Session was closed.")
        return self.sessions.setdefault(name, {"files": []})

    def close(self, name: str) -> None:
        del self.sessions[name]
        self.closed.add(name)

    def restart(self) -> None:
        self.sessions.clear()
        self.closed.clear()

    def clone(self, request: Any, *, metadata: Any, timeout: float) -> None:
        assert (list(metadata), request.user_context.user_id) == ([("token", "t")], "perago")
        assert timeout > 0
        self.before_clone()
        source, target = request.session_id, request.new_session_id
        if source in self.closed:
            raise Refused("[INVALID_HANDLE.SESSION_CLOSED] Session was closed.")
        if source not in self.sessions:
            raise Refused("[INVALID_HANDLE.SESSION_NOT_FOUND] Session not found.")
        for names, why in ((self.closed, "CLOSED"), (self.sessions, "EXISTS")):
            if target in names:
                raise Refused(f"[INVALID_CLONE_SESSION_REQUEST.TARGET_SESSION_ID_ALREADY_{why}]")
        self.sessions[target] = {
            **self.sessions[source],
            "files": [*self.sessions[source]["files"]],
        }
        if self.lost_replies:
            self.lost_replies -= 1
            raise Refused("the connection was lost", grpc.StatusCode.UNAVAILABLE)


class Session:
    """A new session, of which the server does not know yet."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.name = str(uuid.uuid4())
        self.client = SimpleNamespace(
            _session_id=self.name,
            _user_id="perago",
            _builder=SimpleNamespace(userAgent="test", metadata=lambda: iter([("token", "t")])),
            _stub=SimpleNamespace(CloneSession=server.clone),
            _retrying=lambda: Retrying(DefaultPolicy(max_retries=3, initial_backoff=1)),
            _handle_error=self._raise,
        )
        self.conf = SimpleNamespace(get=self._get, set=self._set)

    @staticmethod
    def _raise(error: Exception) -> None:
        raise SparkConnectException(str(error)) from error

    def _get(self, key: str, default: str) -> str:
        return str(self.server.session(self.name).get(key, default))

    def _set(self, key: str, value: str) -> None:
        self.server.session(self.name)[key] = value

    @property
    def files(self) -> list[str]:
        return list(self.server.sessions[self.name]["files"])


@dataclass
class Content:
    digest: str = "first"
    is_empty: bool = False
    # What happens when half of it was sent.
    halfway: Callable[[], None] = lambda: None

    def send(self, session: Session) -> None:
        files = session.server.session(session.name)["files"]
        session.server.uploads += 1
        files.append("one")
        self.halfway()
        files.append("two")


@dataclass
class Shipment:
    current: Content = field(default_factory=Content)

    def content(self, *, shares: bool) -> Any:
        return Content("", is_empty=True) if shares else self.current


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()

    def read_setting(remote: str, key: str, default: str) -> str:
        assert (remote, key, default) == (REMOTE, SHARES_MODULES, "false")
        return "true" if server.sharing else "false"

    monkeypatch.setattr(module, "read_setting", read_setting)
    return server


def a_process(given: Shipment | None = None) -> BaseSessions:
    shipment: Any = given or Shipment()
    return BaseSessions(shipment)


def begun(bases: BaseSessions, server: Server) -> Session:
    session = Session(server)
    bases.begin(REMOTE, session)
    return session


def base_of(server: Server, *sessions: Session) -> str:
    [name] = set(server.sessions) - {session.name for session in sessions}
    return name


def test_the_second_session_is_sent_nothing_in_this_process_or_another(server: Server) -> None:
    bases = a_process()
    sessions = [begun(bases, server), begun(bases, server), begun(a_process(), server)]
    assert server.uploads == 1
    for session in sessions:
        assert session.files == ["one", "two"]
    # And a base session, which is nobody's.
    assert len(server.sessions) == 4


def test_other_content_has_another_base_session(server: Server) -> None:
    shipment = Shipment()
    bases = a_process(shipment)
    begun(bases, server)
    shipment.current = Content("second")
    begun(bases, server)
    begun(bases, server)
    assert server.uploads == 2


def test_a_server_that_shares_our_modules_is_asked_once_and_sent_nothing(server: Server) -> None:
    server.sharing = True
    bases = a_process()
    begun(bases, server)
    server.sharing = False
    begun(bases, server)
    assert (server.uploads, server.sessions) == (0, {})


def test_a_base_session_that_the_server_closed_is_replaced(server: Server) -> None:
    """It closes one that nobody used for an hour, and takes its id never again."""
    bases = a_process()
    server.close(base_of(server, first := begun(bases, server)))
    second = begun(bases, server)
    assert server.uploads == 2
    begun(bases, server)
    begun(a_process(), server)
    assert server.uploads == 2
    # The sessions that began from it go on.
    assert first.files == second.files == ["one", "two"]


def test_a_server_that_was_started_anew_is_sent_everything_again(server: Server) -> None:
    bases = a_process()
    begun(bases, server)
    server.restart()
    assert begun(bases, server).files == ["one", "two"]
    assert begun(bases, server).files == ["one", "two"]
    assert server.uploads == 2


def test_each_day_has_a_base_session_of_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the numbers of those that were closed do not grow for ever."""
    bases = a_process()
    begun(bases, server)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    monkeypatch.setattr(module, "datetime", SimpleNamespace(now=lambda _: tomorrow))
    begun(bases, server)
    begun(bases, server)
    assert server.uploads == 2


def test_a_server_that_closes_too_many_gets_everything_with_each_session(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_A_DAY", 2)
    bases = a_process()
    for _ in range(3):
        server.sessions.clear()
        first = begun(bases, server)
        if len(server.sessions) > 1:
            server.close(base_of(server, first))
    assert begun(bases, server).files == ["one", "two"]
    assert server.uploads == 4


def test_a_process_that_ends_while_it_sends_leaves_no_base_session(server: Server) -> None:
    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begun(a_process(Shipment(Content(halfway=crash))), server)
    assert begun(a_process(), server).files == ["one", "two"]
    assert server.uploads == 2


def test_two_processes_that_begin_at_the_same_moment_both_end_well(server: Server) -> None:
    other: list[Session] = []

    def begin_another() -> None:
        if not other:
            other.append(Session(server))
            a_process().begin(REMOTE, other[0])

    first = begun(a_process(Shipment(Content(halfway=begin_another))), server)
    assert (first.files, other[0].files) == (["one", "two"], ["one", "two"])
    assert server.uploads == 2
    assert begun(a_process(), server).files == ["one", "two"]
    assert server.uploads == 2


def test_a_file_that_changes_while_it_is_sent_makes_no_base_session(server: Server) -> None:
    shipment = Shipment()
    shipment.current.halfway = lambda: setattr(shipment, "current", Content("second"))
    bases = a_process(shipment)
    session = begun(bases, server)
    assert set(server.sessions) == {session.name}
    begun(bases, server)
    begun(bases, server)
    assert server.uploads == 2


def test_a_session_with_the_id_of_a_base_session_but_without_content_is_not_trusted(
    server: Server,
) -> None:
    base = base_of(server, begun(a_process(), server))
    server.sessions[base] = {"files": ["something"]}
    assert begun(a_process(), server).files == ["something", "one", "two"]


def test_a_lost_reply_to_a_clone_costs_nothing(server: Server) -> None:
    bases = a_process()
    begun(bases, server)
    server.lost_replies = 1
    assert begun(bases, server).files == ["one", "two"]
    assert server.uploads == 1


def test_a_base_session_that_is_closed_between_two_requests_is_sent_again(server: Server) -> None:
    bases = a_process()
    base = base_of(server, begun(bases, server))

    def close_once() -> None:
        if base in server.sessions:
            server.close(base)

    server.before_clone = close_once
    assert begun(bases, server).files == ["one", "two"]
    assert server.uploads == 2


def refuse(*error: Any) -> Callable[[], None]:
    def refusing() -> None:
        raise Refused(*error)

    return refusing


def test_a_server_without_clones_gets_everything_with_each_session_and_is_asked_once(
    server: Server,
) -> None:
    server.before_clone = refuse("Method not found", grpc.StatusCode.UNIMPLEMENTED)
    bases = a_process()
    with capture_logs() as lines:
        for _ in range(3):
            assert begun(bases, server).files == ["one", "two"]
    assert server.uploads == 3
    actions = [line["event"] for line in lines]
    assert actions.count("spark_clones_unsupported") == 1
    assert actions.count("spark_modules_sent") == 3


def test_a_clone_that_the_server_fails_to_make_is_logged_and_done_without(server: Server) -> None:
    server.before_clone = refuse("No space left on device")
    with capture_logs() as lines:
        assert begun(a_process(), server).files == ["one", "two"]
    [line, *_] = [line for line in lines if line["event"] == "spark_clone_failed"]
    assert line["reason"] == "No space left on device"


def test_a_server_that_does_not_answer_fails_the_session(server: Server) -> None:
    server.before_clone = refuse("connection refused", grpc.StatusCode.UNAVAILABLE)
    with (
        pytest.warns(UserWarning, match="RETRIES_EXCEEDED"),
        pytest.raises(SparkConnectException, match="connection refused"),
    ):
        begun(a_process(), server)
    assert server.uploads == 0


def test_a_session_that_was_ended_is_not_made_again(server: Server) -> None:
    bases = a_process()
    begun(bases, server)
    session = Session(server)
    server.closed.add(session.name)
    with pytest.raises(Refused, match="SESSION_CLOSED"):
        bases.begin(REMOTE, session)
    assert server.uploads == 1


@pytest.mark.parametrize(
    ("source", "target", "ended"),
    [
        ("source", "new", Cloning.DONE),
        ("absent", "new", Cloning.NO_SOURCE),
        ("over", "new", Cloning.SOURCE_CLOSED),
        ("source", "there", Cloning.TARGET_EXISTS),
        ("source", "over", Cloning.TARGET_CLOSED),
    ],
)
def test_what_a_server_says_to_a_request_for_a_clone(
    source: str, target: str, ended: Cloning, server: Server
) -> None:
    server.sessions |= {"source": {"files": []}, "there": {"files": []}}
    server.closed.add("over")
    assert clone(Session(server).client, source, target)[0] is ended


def test_the_content_is_set_when_everything_was_sent(server: Server) -> None:
    seen: list[bool] = []
    content = Content(halfway=lambda: seen.append(_has_content(server)))
    begun(a_process(Shipment(content)), server)
    assert seen == [False]
    assert _has_content(server)


def _has_content(server: Server) -> bool:
    return any(CONTENT_SETTING in session for session in server.sessions.values())
