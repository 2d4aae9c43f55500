"""The fault injection itself: what it promises to the tests that use it."""

from __future__ import annotations

import pytest

from perago.errors import BackendUnavailableError, LostReplyError
from perago.testing import (
    Faults,
    ManualClock,
    fails,
    followed_by,
    lands_late,
    preceded_by,
    reply_lost,
    request_lost,
)


class Server:
    """Counts."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.done: list[str] = []

    def call(self, name: str = "a.one") -> int:
        def do() -> int:
            self.done.append(name)
            return len(self.done)

        return self.faults.run(name, do)


def test_a_fault_happens_once_and_only_at_its_call() -> None:
    server = Server()
    server.faults.inject("a.one", fails(ValueError("once")))
    assert server.call("a.two") == 1
    with pytest.raises(ValueError, match="once"):
        server.call()
    assert server.call() == 2
    assert server.faults.calls == ["a.two", "a.one", "a.one"]


def test_faults_at_one_call_queue_up_and_can_be_put_off() -> None:
    server = Server()
    server.faults.inject("a.one", fails(KeyError()), skip=1)
    server.faults.inject("a.one", fails(ValueError()))
    server.faults.inject("a.one", fails(TypeError()))
    for error in (ValueError, KeyError, TypeError):
        with pytest.raises(error):
            server.call()
    assert server.call() == 1


def test_what_never_happened_is_pending() -> None:
    server = Server()
    server.faults.inject("a.one", reply_lost)
    assert server.faults.pending == ["a.one"]
    with pytest.raises(LostReplyError):
        server.call()
    assert server.faults.pending == []


def test_a_lost_reply_was_done_and_a_lost_request_was_not() -> None:
    server = Server()
    server.faults.inject("a.one", reply_lost)
    server.faults.inject("a.one", request_lost)
    for _ in range(2):
        with pytest.raises(LostReplyError):
            server.call()
    assert server.done == ["a.one"]


def test_a_late_change_is_made_when_its_time_comes() -> None:
    server, clock = Server(), ManualClock()
    server.faults.inject("a.one", lands_late(clock, 5))
    with pytest.raises(LostReplyError):
        server.call()
    clock.advance(4.9)
    assert server.done == []
    clock.sleep(0.2)
    assert server.done == ["a.one"]


def test_something_else_can_happen_before_or_after_a_call() -> None:
    server = Server()
    server.faults.inject("a.one", preceded_by(lambda: server.done.append("before")))
    server.faults.inject("a.one", followed_by(lambda: server.done.append("after")))
    assert server.call() == 2
    assert server.call() == 3
    assert server.done == ["before", "a.one", "a.one", "after"]


def test_an_outage_takes_a_port_or_one_call_down_until_it_ends() -> None:
    server = Server()
    with server.faults.outage("a"):
        for name in ("a.one", "a.two"):
            with pytest.raises(BackendUnavailableError):
                server.call(name)
        assert server.call("b.one") == 1
    with server.faults.outage("a.one"):
        assert server.call("a.two") == 2
        with pytest.raises(BackendUnavailableError):
            server.call()
    assert server.call() == 3


def test_planned_actions_run_in_order_and_see_their_own_time() -> None:
    clock = ManualClock()
    seen: list[tuple[str, float]] = []
    clock.call_later(3, lambda: seen.append(("late", clock.monotonic())))
    clock.call_later(1, lambda: clock.call_later(1, lambda: seen.append(("planned", 0))))
    clock.call_later(1, lambda: seen.append(("early", clock.monotonic())))
    clock.advance(10)
    assert seen == [("early", 1), ("planned", 0), ("late", 3)]
    assert clock.monotonic() == 10


def test_the_date_follows_the_clock() -> None:
    clock = ManualClock()
    before = clock.today()
    clock.advance(86_400)
    assert (before, clock.today()) == ("20260101", "20260102")
