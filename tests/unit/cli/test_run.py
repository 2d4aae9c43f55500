"""What `perago run` shows while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from perago.cli.run import _Display
from perago.progress import Advance
from perago.protocol.events import PhaseEvent

Shown = list[tuple[str, list[int]]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """The bars, with what each was told; one that is over has "over" in its title."""
    bars: Shown = []

    @contextmanager
    def transfer(title: str, total: int | None) -> Iterator[Advance]:
        assert total is None
        told: list[int] = []
        bars.append((title, told))
        yield told.append
        bars[-1] = (f"{title} over", told)

    monkeypatch.setattr("perago.progress.transfer", transfer)
    return bars


def started(phase: str) -> PhaseEvent:
    return PhaseEvent("phase_started", phase)


def ended(phase: str) -> PhaseEvent:
    return PhaseEvent("phase_ended", phase, 1.0, {"objects": 2})


def test_each_transfer_has_a_bar_that_counts_its_own_bytes(
    shown: Shown, capsys: pytest.CaptureFixture[str]
) -> None:
    with _Display() as display:
        display.show(started("download"))
        display.count(3)
        # Tells nothing to a person, and so is no reason to end the bar.
        display.show(PhaseEvent("partition_done", "download"))
        display.count(5)
        assert shown == [("download", [3, 5])]
        display.show(ended("download"))
        display.show(started("body"))
        display.show(ended("body"))
        display.show(started("stage"))
        display.count(9)
    assert shown == [("download over", [3, 5]), ("stage over", [4])]
    assert capsys.readouterr().err.splitlines() == [
        "download: 1.00 s objects=2",
        "body: 1.00 s objects=2",
    ]


def test_a_run_that_fails_leaves_no_bar(shown: Shown) -> None:
    def run() -> None:
        with _Display() as display:
            display.show(started("download"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert [title for title, _ in shown] == ["download over"]
