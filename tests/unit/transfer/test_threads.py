"""Many items on a few threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from perago.transfer.threads import ByteBudget, run_over


def test_every_item_is_worked_on_once() -> None:
    done: list[int] = []
    run_over(range(1000), done.append, 8)
    assert sorted(done) == list(range(1000))


def test_no_item_and_no_thread_is_nothing_to_do() -> None:
    run_over([], pytest.fail, 0)


def test_items_are_pulled_as_they_are_needed_and_not_ahead() -> None:
    given = 0
    most_ahead = 0
    done: list[int] = []

    def source() -> Iterator[int]:
        nonlocal given
        for item in range(500):
            given += 1
            yield item

    def work(item: int) -> None:
        nonlocal most_ahead
        done.append(item)
        most_ahead = max(most_ahead, given - len(done))

    run_over(source(), work, 4)
    assert most_ahead <= 4


def test_the_first_error_is_raised_and_stops_the_rest() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        if item == 3:
            raise ValueError("three")
        done.append(item)

    with pytest.raises(ValueError, match="three"):
        run_over(range(10_000), work, 1)
    assert done == [0, 1, 2]


def test_an_error_of_the_source_is_raised() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ConnectionError("the listing broke")

    with pytest.raises(ConnectionError, match="the listing broke"):
        run_over(source(), lambda _: None, 4)


def test_an_interrupted_caller_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    join = threading.Thread.join
    calls: list[str] = []

    def interrupted(self: threading.Thread, timeout: float | None = None) -> None:
        calls.append(self.name)
        if len(calls) == 1:
            raise KeyboardInterrupt
        join(self, timeout)

    release = threading.Event()

    def wait(_: int) -> None:
        release.wait(30)

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    threading.Timer(0.2, release.set).start()
    with pytest.raises(KeyboardInterrupt):
        run_over(range(100), wait, 4)
    assert not [t for t in threading.enumerate() if t.name == "perago-transfer"]


def test_what_is_held_at_once_never_exceeds_the_budget() -> None:
    budget, lock = ByteBudget(10), threading.Lock()
    held = most = 0

    def work(amount: int) -> None:
        nonlocal held, most
        with budget.take(amount):
            with lock:
                held += amount
                most = max(most, held)
            time.sleep(0.001)  # so that others try meanwhile
            with lock:
                held -= amount

    run_over([1, 7, 4, 10, 3, 9, 2] * 50, work, 8)
    assert most <= 10
    assert held == 0


def test_an_item_larger_than_the_whole_budget_still_gets_its_turn() -> None:
    budget = ByteBudget(10)
    with budget.take(1_000_000):
        pass
    with budget.take(10):
        pass


def test_an_error_ends_what_waits_for_memory_although_nothing_is_freed() -> None:
    budget, failing, released = ByteBudget(10), threading.Event(), threading.Event()
    done: list[str] = []

    def work(item: str) -> None:
        if item == "failing":
            failing.wait(30)
            raise KeyError(item)
        with budget.take(10):
            if item == "holder":
                failing.set()
                for _ in budget.guarded(iter(lambda: released.wait(0.01), True)):
                    pass
            done.append(item)

    with pytest.raises(KeyError, match="failing"):
        run_over(["holder", "failing", "waiting"], work, 3, on_error=budget.close)
    assert "holder" not in done
