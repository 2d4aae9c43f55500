"""One poller for all slots: what it claims, when it waits, and that no claim is lost."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from perago.errors import BackendRefusedError, BackendUnavailableError, TaskFailed
from perago.protocol.identity import Attempt, Claim
from perago.protocol.outcome import Completed, failure_of
from perago.protocol.ports import Delivery
from perago.worker import poller as poller_module
from perago.worker.poller import Poller, SlotInbox, StopSignals
from support.waiting import until

DOWN = failure_of(BackendUnavailableError("LakeFS is away"))


class Queues:
    """Queues of tasks by type, and what was asked of them."""

    def __init__(self, **waiting: int) -> None:
        self.waiting = {name: deque(range(count)) for name, count in waiting.items()}
        self.polls: list[tuple[str, int, int]] = []
        self.looks = 0
        self.back: list[Delivery] = []
        self.failures = 0
        self.successes = 0
        self.error: Exception | None = None
        self.silent = False
        self.pause = threading.Event()

    def poll(self, task: str, count: int, *, wait_ms: int) -> list[Delivery]:
        self.polls.append((task, count, wait_ms))
        if self.error is not None:
            raise self.error
        if self.waiting.get(task):
            waiting = self.waiting[task]
            numbers = [waiting.popleft() for _ in range(min(count, len(waiting)))]
            attempts = [Attempt("w", f"{task}-{number}", 0, "step") for number in numbers]
            return [Delivery(Claim(attempt, "token"), task, {}, 60.0) for attempt in attempts]
        if wait_ms:
            self.pause.wait(0.01)
        return []

    def find_waiting(self, tasks: Sequence[str]) -> list[str]:
        self.looks += 1
        if self.silent:
            raise BackendRefusedError("no such path")
        return [name for name in tasks if self.waiting.get(name)]

    def hand_back(self, delivery: Delivery) -> None:
        self.back.append(delivery)

    def poll_succeeded(self) -> None:
        self.successes += 1

    def poll_failed(self, task: str) -> None:
        self.failures += 1


@contextmanager
def polling(queues: Queues, stops: StopSignals, *names: str) -> Iterator[Poller]:
    poller = Poller(queues, names or list(queues.waiting), stops)
    thread = threading.Thread(target=poller.run)
    thread.start()
    try:
        yield poller
    finally:
        stops.draining.set()
        thread.join(10)
        assert not thread.is_alive()


def take(poller: Poller, stops: StopSignals) -> str:
    inbox = SlotInbox()
    poller.offer(inbox)
    delivery = inbox.take(stops.draining)
    assert delivery is not None
    return delivery.task_type


def test_nothing_is_claimed_without_a_slot_that_waits() -> None:
    queues, stops = Queues(a=3), StopSignals()
    with polling(queues, stops) as poller:
        assert take(poller, stops) == "a"
        threading.Event().wait(0.3)
        assert len(queues.waiting["a"]) == 2


def test_as_many_are_claimed_at_once_as_slots_wait() -> None:
    queues, stops = Queues(a=9), StopSignals()
    with polling(queues, stops) as poller:
        taken = [take(poller, stops)]
        inboxes = [SlotInbox() for _ in range(4)]
        for inbox in inboxes:
            poller._idle.put(inbox)
        taken += [found.task_type for inbox in inboxes if (found := inbox.take(stops.draining))]
    assert taken == ["a"] * 5
    # The first is waited for alone. How many of the four were idle by the next poll is chance.
    assert queues.polls[0] == ("a", 1, poller_module._POLL_MS)
    counts = [count for _, count, wait_ms in queues.polls[1:] if not wait_ms]
    assert sum(counts) == 4
    assert len(queues.waiting["a"]) == 4


def test_the_slot_that_became_idle_last_gets_the_next_attempt() -> None:
    """Its executor may have kept the workspace of the step before."""
    queues, stops = Queues(a=0), StopSignals()
    with polling(queues, stops) as poller:
        first, second = SlotInbox(), SlotInbox()
        for inbox in (first, second):
            poller.offer(inbox)
        until(lambda: len(poller._inboxes) == 2, "both slots to be idle")
        queues.waiting["a"].append(0)
        assert second.take(stops.draining) is not None
        assert len(poller._inboxes) == 1


def test_a_queue_that_may_hold_more_is_asked_without_waiting_and_an_empty_one_for_one() -> None:
    queues, stops = Queues(a=3), StopSignals()
    poller = Poller(queues, ["a"], stops)
    assert [len(poller._claim(2)) for _ in range(4)] == [1, 2, 0, 0]
    waits = [("a", 1, poller_module._POLL_MS)]
    assert queues.polls == [*waits, ("a", 2, 0), ("a", 2, 0), *waits, *waits]


def test_busy_queues_take_turns() -> None:
    queues, stops = Queues(a=4, b=4, c=0), StopSignals()
    with polling(queues, stops) as poller:
        taken = [take(poller, stops) for _ in range(6)]
    assert sorted(taken[:2]) == sorted(taken[2:4]) == ["a", "b"]


def test_a_queue_that_fills_later_is_not_starved_by_a_busy_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poller_module, "_LOOK_SECONDS", 0.0)
    queues, stops = Queues(a=100, b=0), StopSignals()
    with polling(queues, stops) as poller:
        take(poller, stops)
        queues.waiting["b"].append(0)
        assert "b" in [take(poller, stops) for _ in range(3)]


def test_an_idle_worker_looks_at_all_queues_with_one_request() -> None:
    names = [f"t{number}" for number in range(14)]
    queues, stops = Queues(**dict.fromkeys(names, 0)), StopSignals()
    with polling(queues, stops) as poller:
        poller.offer(SlotInbox())
        until(lambda: len(queues.polls) >= 5, "some polls")
    assert all(poll[1:] == (1, poller_module._POLL_MS) for poll in queues.polls)
    assert queues.looks <= len(queues.polls)


def test_a_server_that_does_not_tell_sizes_is_polled_queue_by_queue() -> None:
    queues, stops = Queues(a=0, b=1), StopSignals()
    queues.silent = True
    with polling(queues, stops) as poller:
        assert take(poller, stops) == "b"


@pytest.mark.parametrize("error", [BackendUnavailableError("down"), RecursionError("deep")])
def test_no_answer_of_a_server_ends_the_poller(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(poller_module, "_FIRST_OUTAGE_PAUSE", 0.01)
    queues, stops = Queues(a=1), StopSignals()
    queues.error = error
    with polling(queues, stops) as poller:
        inbox = SlotInbox()
        poller.offer(inbox)
        until(lambda: queues.failures >= 2, "polls to fail")
        queues.error = None
        delivery = inbox.take(stops.draining)
    assert delivery is not None
    assert queues.successes >= 1


def test_what_is_claimed_while_the_worker_stops_goes_back() -> None:
    queues, stops = Queues(a=0), StopSignals()
    with polling(queues, stops) as poller:
        inbox = SlotInbox()
        poller.offer(inbox)
        until(lambda: queues.polls, "a poll")
        stops.draining.set()
        assert inbox.take(stops.draining) is None
        queues.waiting["a"].append(0)
    left = len(queues.waiting["a"])
    assert left + len(queues.back) == 1


def test_a_place_whose_slot_has_left_takes_nothing() -> None:
    stops = StopSignals()
    stops.draining.set()
    inbox = SlotInbox()
    assert inbox.take(stops.draining) is None
    claim = Claim(Attempt("w", "t", 0, "step"), "token")
    assert not inbox.give(Delivery(claim, "a", {}, 60.0))


def test_failures_of_the_infrastructure_pause_polling_longer_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    poller = Poller(Queues(a=1), ["a"], StopSignals(), lambda: now[0])
    pauses = []
    for _ in range(6):
        poller.note("a", DOWN)
        pauses.append(poller._resume_at - now[0])
        now[0] = poller._resume_at
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    poller.note("a", failure_of(TaskFailed("the task's own")))
    poller.note("a", DOWN)
    assert poller._resume_at - now[0] == 5.0
    poller.note("a", Completed({}))
    assert poller._troubles == 0


def test_polling_still_pauses_after_failures_of_a_whole_night() -> None:
    now = [100.0]
    poller = Poller(Queues(a=1), ["a"], StopSignals(), lambda: now[0])
    for _ in range(2000):
        now[0] = max(now[0], poller._resume_at)
        poller.note("a", DOWN)
    assert poller._resume_at == now[0] + 60.0


def test_slots_that_fail_in_one_outage_pause_polling_once() -> None:
    now = [100.0]
    poller = Poller(Queues(a=1), ["a"], StopSignals(), lambda: now[0])
    for _ in range(3):
        poller.note("a", DOWN)
        now[0] += 1.0
    assert poller._resume_at == 105.0
    now[0] = 105.0
    poller.note("a", DOWN)
    assert poller._resume_at == 115.0


def test_an_attempt_that_completes_ends_the_pause() -> None:
    poller = Poller(Queues(a=1), ["a"], StopSignals(), lambda: 100.0)
    poller.note("a", DOWN)
    poller.note("a", Completed({}))
    assert poller._resume_at <= 100.0


def test_a_task_that_the_outage_does_not_concern_does_not_end_the_pause() -> None:
    """One without a workspace, for one, while LakeFS is away."""
    now = [100.0]
    poller = Poller(Queues(a=1), ["a", "b"], StopSignals(), lambda: now[0])
    for pause in (5.0, 10.0):
        poller.note("a", DOWN)
        poller.note("b", Completed({}))
        assert poller._resume_at - now[0] == pause
        now[0] = poller._resume_at
    now[0] += 601.0
    poller.note("a", DOWN)
    assert poller._resume_at - now[0] == 5.0


def test_no_length_of_an_outage_ends_the_poller() -> None:
    queues, stops = Queues(a=1), StopSignals()
    stops.draining.set()  # so that no pause is waited for
    queues.error = BackendUnavailableError("Conductor is away")
    poller = Poller(queues, ["a"], stops)
    for _ in range(2000):
        assert poller._claim(1) == []
    queues.error = None
    assert len(poller._claim(1)) == 1


def test_while_polling_is_paused_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller_module, "_FIRST_TROUBLE_PAUSE", 0.6)
    queues, stops = Queues(a=1), StopSignals()
    with polling(queues, stops) as poller:
        poller.note("a", DOWN)
        inbox = SlotInbox()
        poller.offer(inbox)
        threading.Event().wait(0.3)
        assert queues.polls == []
        assert inbox.take(stops.draining) is not None
