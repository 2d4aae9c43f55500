"""``perago start`` as a process, and its log as it is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perago.dev import Endpoints

EXAMPLES = Path(__file__).parents[1]
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
# Where servers and jars are obtained from stays as the user has it.
_OF_THE_MACHINE = {"PERAGO_CACHE", "PERAGO_MAVEN_REPOSITORY"}


def _is_setting(variable: str) -> bool:
    """Whether a worker would take it as one of its settings; those are the demonstration's."""
    if variable == "SPARK_REMOTE":
        return True
    return variable.startswith("PERAGO_") and variable not in _OF_THE_MACHINE


class Worker:
    """Serves the tasks of modules, one attempt at a time, until the block ends."""

    def __init__(
        self,
        endpoints: Endpoints,
        folder: Path,
        name: str,
        conductor: str,
        targets: Sequence[str] = ("webshop",),
    ) -> None:
        """``conductor`` is where it is to reach Conductor; ``targets`` are modules and options."""
        self.log = folder / f"{name}.log"
        self._targets = targets
        self.environment = {
            **{key: value for key, value in os.environ.items() if not _is_setting(key)},
            **endpoints.as_environment(),
            "CONDUCTOR_SERVER_URL": conductor,
            "PERAGO_WORKSPACE_ROOT": str(folder / "workspaces"),
            "PERAGO_OBJECT_CACHE": str(folder / "object-cache"),
            "PERAGO_LOG_FORMAT": "json",
            "PERAGO_LOG_LEVEL": "info",
            "PERAGO_METRICS_ADDRESS": "off",
        }
        self._read = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "perago", "start", *self._targets, "--register"],
                cwd=EXAMPLES,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._await_start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the worker has not been started")
        return self._process

    def kill(self) -> None:
        """SIGKILL to the supervisor: no handler, no farewell. Its executors end by themselves."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(_STOP_SECONDS)

    def has_died(self) -> bool:
        """Whether it ended by itself; one that is just being killed gets a moment to be seen."""
        if self.process.poll() is None:
            return False
        time.sleep(1)
        return True

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """What was logged since the last call."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    return  # still being written
                self._read += len(line)
                if line.startswith(b"{"):
                    yield json.loads(line)

    def tail(self) -> str:
        """The end of the log, for an error message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def _await_start(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not any(line["action"] == "executor_started" for line in self.new_lines()):
            if self.process.poll() is not None:
                raise SystemExit(f"the worker did not start:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"the worker was not ready after {_START_SECONDS:.0f} s:\n{self.tail()}"
                )
            time.sleep(0.1)

    def _end(self) -> None:
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
