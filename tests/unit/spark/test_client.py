"""The sessions of an attempt: labelled with its phases, and ended with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from perago.errors import BackendUnavailableError, ConfigurationError
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Attempt, Claim, Execution
from perago.spark import client as module
from perago.spark.base import BaseSessions
from perago.spark.client import SparkClient
from perago.spark.labels import GROUP_SETTING

EXECUTION = Execution(Claim(Attempt("wf", "task-1", 0, "step"), "token"), "exec-1")


class Session:
    """As much of a session as labels need."""

    def __init__(self, begin: Any) -> None:
        self.begin = begin
        self.settings: dict[str, str] = {}
        self.client = SimpleNamespace(
            _execute_plan_request_with_metadata=lambda: SimpleNamespace(tags=[])
        )
        self.conf = SimpleNamespace(set=self._set)

    def _set(self, key: str, value: str) -> None:
        self.settings[key] = value

    @property
    def phase(self) -> str:
        """The phase of which the next request tells."""
        tags = self.client._execute_plan_request_with_metadata().tags
        [found] = [tag for tag in tags if tag.startswith("perago-phase-")]
        return str(found.removeprefix("perago-phase-"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Session]]:
    """The sessions that were opened, with the ids of their executions."""
    made: list[tuple[str, Session]] = []

    def open_session(_: str, execution_id: str, *, begin: Any) -> Session:
        made.append((execution_id, Session(begin)))
        return made[-1][1]

    monkeypatch.setattr(module, "open_session", open_session)
    return made


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    done: list[object] = []
    monkeypatch.setattr(module, "end_session", done.append)
    return done


def started(phase: str) -> PhaseEvent:
    return PhaseEvent("phase_started", phase)


def test_the_sessions_of_an_attempt_follow_its_phases(
    opened: list[tuple[str, Session]], ended: list[object]
) -> None:
    client = SparkClient(lambda: "sc://localhost:1", ())
    with client.attempt("clean", EXECUTION):
        client.note(started("session"))
        client.open(EXECUTION.id)
        [(_, session)] = opened
        assert session.settings == {GROUP_SETTING: "clean task-1"}
        assert session.phase == "session"
        client.note(started("body"))
        client.note(PhaseEvent("phase_ended", "session", 1.0))
        assert session.phase == "body"
        assert ended == []
    # What begins after the attempt is not told of it.
    client.note(started("validate"))
    assert session.phase == "body"


def test_the_session_of_a_transfer_is_the_attempt_s_and_ends_with_it(
    opened: list[tuple[str, Session]], ended: list[object]
) -> None:
    client = SparkClient(lambda: "sc://localhost:1", ())
    with client.attempt("clean", EXECUTION):
        client.note(started("download"))
        session = client.transfer_session()
        assert client.transfer_session() is session
        assert session.phase == "download"
    assert [execution_id for execution_id, _ in opened] == [EXECUTION.id]
    assert ended == [session]


def test_all_sessions_begin_with_what_the_client_knows_of_the_server(
    opened: list[tuple[str, Session]],
) -> None:
    client = SparkClient(lambda: "sc://localhost:1", ())
    client.open("one")
    client.open("two")
    [(_, first), (_, second)] = opened
    assert isinstance(first.begin.__self__, BaseSessions)
    assert first.begin == second.begin


def test_a_session_that_cannot_be_labelled_is_closed(
    opened: list[tuple[str, Session]], ended: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SparkClient(lambda: "sc://localhost:1", ())
    monkeypatch.setattr(Session, "_set", lambda *_: (_ for _ in ()).throw(RuntimeError("no")))
    with client.attempt("clean", EXECUTION), pytest.raises(BackendUnavailableError):
        client.open(EXECUTION.id)
    assert ended == [opened[0][1]]


@pytest.mark.parametrize("foreign", [RuntimeError("the server hung up\nlong"), OSError("full")])
def test_a_session_that_cannot_be_opened_is_our_error(
    monkeypatch: pytest.MonkeyPatch, foreign: Exception
) -> None:
    def refuse(*_: Any, **__: Any) -> Session:
        raise foreign

    monkeypatch.setattr(module, "open_session", refuse)
    client = SparkClient(lambda: "sc://localhost:1", ())
    said = r"^Spark could not open a session: \w+: [\w ]+$"
    ways: list[Callable[[], Any]] = [partial(client.open, "exec-1"), client.transfer_session]
    for open_one in ways:
        with pytest.raises(BackendUnavailableError, match=said) as caught:
            open_one()
        assert caught.value.__cause__ is foreign


def test_a_missing_server_keeps_its_own_error() -> None:
    def find_remote() -> str:
        raise ConfigurationError("there is no Spark")

    with pytest.raises(ConfigurationError, match="there is no Spark"):
        SparkClient(find_remote, ()).open("exec-1")
