"""What a long transfer has done so far, in the Conductor task log while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from perago.errors import BackendError
from perago.protocol.events import PhaseEvent

# A transfer of a million objects finishes several partitions a second; each post is a request.
_SECONDS_BETWEEN_POSTS = 10.0
_log = structlog.get_logger(__name__)


def event_line(event: PhaseEvent) -> str:
    """A timed event as the task log has it."""
    details = "".join(f" {key}={value}" for key, value in event.details.items())
    return f"{event.phase} {event.seconds or 0.0:.3f} s{details}"


class Progress:
    """Collects the lines of finished partitions and posts them together, now and then.

    What cannot be posted is in the worker's log all the same: no error comes out of here.
    """

    def __init__(
        self, post: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._post = post
        self._clock = clock
        self._lines: list[str] = []
        self._posted_at = clock()

    def note(self, event: PhaseEvent) -> None:
        if event.action != "partition_done":
            return
        self._lines.append(event_line(event))
        if self._clock() - self._posted_at >= _SECONDS_BETWEEN_POSTS:
            self.flush()

    def flush(self) -> None:
        """Post what has not been posted yet."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            # The SDK escapes what it sends: a line break would be read as a backslash and an n.
            self._post("; ".join(lines))
        except BackendError as error:
            _log.warning("progress_not_posted", reason=str(error))
        self._posted_at = self._clock()
