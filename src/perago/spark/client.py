"""Open the Connect sessions of an attempt when they are needed.

A Spark task needs one for its body; a file task needs one when its workspace is large enough for
Spark to move it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog

from perago.masking import remember_spark_remote
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import Execution
from perago.spark.base import BaseSessions
from perago.spark.errors import translated
from perago.spark.files import SparkFiles
from perago.spark.labels import Label, Labelled
from perago.spark.session import end_session, interrupt, open_session
from perago.spark.shipment import Shipment

_NO_FILES = SparkFiles()
_log = structlog.get_logger(__name__)


class SparkClient:
    """Opens the sessions of one attempt at a time; for use by one thread."""

    def __init__(
        self,
        find_remote: Callable[[], str],
        targets: Sequence[str],
        data: Sequence[str] = (),
        files: SparkFiles = _NO_FILES,
    ) -> None:
        """``find_remote`` returns the connection string, or raises if there is no server.

        ``data`` are patterns of the data files that executors on a cluster get.
        """
        self._find_remote = find_remote
        self._bases = BaseSessions(Shipment(targets, data, files))
        self._label: Label | None = None
        self._phase = ""
        # The sessions of this attempt, with the labels of their jobs.
        self._labelled: list[Labelled] = []
        self._transfer_session: Any = None

    def open(self, execution_id: str) -> Any:
        """Open a session of an execution, with what its executors lack."""
        with translated("open a session"):
            return self._open(execution_id)

    def _open(self, execution_id: str) -> Any:
        remote = self._find_remote()
        remember_spark_remote(remote)
        session = open_session(remote, execution_id, begin=self._bases.begin)
        try:
            if self._label is not None:
                self._labelled.append(Labelled(session, self._label, self._phase))
        except BaseException:
            end_session(session)
            raise
        return session

    def note(self, event: PhaseEvent) -> None:
        """Label the jobs of this attempt with the phase that begins."""
        if event.action == "phase_started":
            self._phase = event.phase
            for labelled in self._labelled:
                labelled.phase = event.phase

    def end(self, execution_id: str) -> None:
        """End the session of another execution and what runs in it; never raises."""
        try:
            ended = interrupt(self._find_remote(), execution_id)
        except Exception as error:  # noqa: BLE001  its branch is gone: what it writes is lost
            _log.warning("spark_interrupt_failed", reason=str(error))
        else:
            _log.info("spark_interrupted", operations=ended)

    def transfer_session(self) -> Any:
        """Return the session that moves the attempt's workspace; the first call opens it."""
        if self._transfer_session is None:
            execution_id = self._label.execution.id if self._label is not None else ""
            self._transfer_session = self.open(execution_id)
        return self._transfer_session

    @contextmanager
    def attempt(self, task: str, execution: Execution) -> Iterator[None]:
        """Open sessions for this execution within the block; end the transfer's with it."""
        self._label = Label(task, execution)
        try:
            yield
        finally:
            self._labelled.clear()
            if self._transfer_session is not None:
                end_session(self._transfer_session)
                self._transfer_session = None
