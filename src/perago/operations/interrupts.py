"""Stop signals during a local run: stop it at once, but never in the middle of publishing."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from perago.protocol.events import EventSink, PhaseEvent
from perago.signals import heeded_stops


class Interrupts:
    """Raises ``KeyboardInterrupt`` for a signal while the run may be broken off.

    A merge whose reply is not waited for has an unknown outcome, so from the beginning of the
    publish phase on the run goes to its end, which its timeouts bound. Cleaning up after a first
    signal is not broken off by a second one.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._phase = ""
        self._unwinding = False
        self._publishing = False
        self._before: dict[int, Any] = {}
        self.signal: int | None = None

    def watch(self, sink: EventSink) -> EventSink:
        """Listen to the phases of the run on their way to ``sink``."""

        def listen(event: PhaseEvent) -> None:
            if event.action == "phase_started":
                self._phase = event.phase
                self._publishing = self._publishing or event.phase == "publish"
            elif event.action in {"phase_ended", "phase_failed"}:
                self._phase = ""
                self._unwinding = self._unwinding or (
                    event.details.get("error") == KeyboardInterrupt.__name__
                )
            sink(event)

        return listen

    def __enter__(self) -> Interrupts:
        for number in heeded_stops():
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._unwinding:
            self._tell("already stopping: cleaning up")
            return
        if self._publishing:
            self._tell("publishing, which is not broken off: the run ends with its result")
            return
        self.signal = number
        # A body may swallow the exception; then the next signal is for it again.
        self._unwinding = self._phase != "body"
        raise KeyboardInterrupt
