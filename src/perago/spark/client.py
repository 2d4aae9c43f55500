"""The sessions of an attempt, opened when they are needed: by a Spark task, and by the transfer of
a workspace that turns out to be large.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from perago.protocol.identity import Execution
from perago.spark.artifacts import build_artifacts
from perago.spark.executions import translated
from perago.spark.session import end_session, interrupt, open_session

_log = structlog.get_logger(__name__)


class SparkClient:
    """Opens the sessions of one attempt at a time. Used by one thread."""

    def __init__(self, find_remote: Callable[[], str], targets: Sequence[str]) -> None:
        """``find_remote`` returns the connection string, or raises why there is none."""
        self._find_remote = find_remote
        self._targets = targets
        self._execution_id = ""
        self._session: Any = None

    def open(self, execution_id: str) -> Any:
        """A session of an execution's own, with the author's modules on a cluster."""
        remote = self._find_remote()
        # What is shipped from there is on the server when the session is open.
        with tempfile.TemporaryDirectory(prefix="perago-artifacts-") as folder:
            return open_session(
                remote,
                execution_id,
                artifacts=lambda: build_artifacts(self._targets, Path(folder)),
            )

    def end(self, execution_id: str) -> None:
        """End the session of another execution and what runs in it; never raises."""
        try:
            ended = interrupt(self._find_remote(), execution_id)
        except Exception as error:  # noqa: BLE001  its branch is gone: what it writes is lost
            _log.warning("spark_interrupt_failed", reason=str(error))
        else:
            _log.info("spark_interrupted", operations=ended)

    def session(self) -> Any:
        """The session that moves the attempt's workspace: opened when it is needed, then kept."""
        if self._session is None:
            with translated("open a session"):
                self._session = self.open(self._execution_id)
        return self._session

    @contextmanager
    def attempt(self, execution: Execution) -> Iterator[None]:
        """Within the block, sessions are this execution's; at its end they are closed."""
        self._execution_id = execution.id
        try:
            yield
        finally:
            if self._session is not None:
                end_session(self._session)
                self._session = None
