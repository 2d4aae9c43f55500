"""Keeping a lease while an attempt runs."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog

from perago.errors import NotFoundError, StaleAttemptError
from perago.protocol.fences import assert_current_attempt_snapshot
from perago.protocol.identity import Claim
from perago.protocol.outcome import describe
from perago.protocol.ports import Attempts

_log = structlog.get_logger(__name__)


class Heartbeat:
    """Renews a claim's lease on a thread of its own, and only after reading it as still ours.

    A tiny attempt is over long before its first renewal, so the thread starts when ``begin`` is
    called. A heartbeat in flight can overwrite a completion in Conductor, so leaving the context
    joins the thread before anything is posted.
    """

    def __init__(
        self,
        attempts: Attempts,
        claim: Claim,
        interval: float,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self._attempts = attempts
        self._claim = claim
        self._interval = interval
        self._on_loss = on_loss
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._renewed = threading.Event()
        self._begun = False
        # The thread logs with the ids of the attempt it was made for.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._beat,), name="perago-heartbeat", daemon=True
        )

    @property
    def is_lost(self) -> bool:
        """Whether Conductor was seen to have taken the attempt away."""
        return self._lost.is_set()

    @property
    def has_renewed(self) -> bool:
        """Whether a renewal was sent, which may arrive late if its reply was lost."""
        return self._renewed.is_set()

    def begin(self) -> None:
        """Renew the lease from now on; a second call does nothing. One thread may call it."""
        if not self._begun:
            self._thread.start()
            self._begun = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._begun:
            self._thread.join()

    def _beat(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                fresh = self._attempts.read(self._claim.attempt.task_id)
                assert_current_attempt_snapshot(self._claim, fresh)
                self._renewed.set()
                self._attempts.renew(self._claim)
            except (StaleAttemptError, NotFoundError) as error:
                # Also a task that Conductor no longer has: the attempt is over.
                self._lost.set()
                self._on_loss()
                _log.warning("lease_lost", reason=str(error))
                return
            except Exception as error:  # noqa: BLE001  a thread that ends would end the lease unseen
                _log.warning("heartbeat_failed", reason=describe(error))
