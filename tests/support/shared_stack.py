"""One stack for all processes of a test run: the first test that needs a server starts it.

The process that the run was started with keeps it. Workers of pytest-xdist ask over a socket, so
that a worker that crashes takes no server along. The servers end with the keeper, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Literal

from perago import dev
from support.lake_servers import lakefs_on_s3

_CLOSE_SECONDS = 120.0
# Every worker may ask at the same time, while the first of them waits for the start.
_BACKLOG = 64

# LakeFS and Conductor, the same with Spark, or a LakeFS on an S3 store.
Asked = Literal["stack", "spark", "s3"]


class StackKeeper:
    """Starts the stack when it is first asked for, and stops it at the end of the run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stack: dev.Stack | None = None
        self._problem: Exception | None = None
        self._on_s3: dev.LakeFSEndpoint | None = None
        self._closing = contextlib.ExitStack()
        self._listener: Listener | None = None
        self._key = secrets.token_bytes(32)

    def stack(self, *, spark: bool = False) -> dev.Stack:
        """The running stack; a start that failed once is not tried again."""
        with self._lock:
            if self._problem is not None:
                raise self._problem
            try:
                with _uncounted():
                    if self._stack is None:
                        folder = Path(tempfile.mkdtemp(prefix="perago-tests-"))
                        self._stack = dev.Stack.up(folder, spark=spark, ephemeral=True)
                    elif spark:
                        self._stack.start_spark()
            except Exception as problem:
                self._problem = problem
                raise
            return self._stack

    def lake_on_s3(self) -> dev.LakeFSEndpoint:
        """A running LakeFS on an S3 store, besides the stack."""
        with self._lock:
            if self._on_s3 is None:
                folder = Path(tempfile.mkdtemp(prefix="perago-tests-"))
                self._closing.callback(shutil.rmtree, folder, ignore_errors=True)
                server = self._closing.enter_context(lakefs_on_s3(folder / "s3"))
                self._on_s3 = server.endpoint
            return self._on_s3

    def listen(self) -> tuple[str, str]:
        """Serve the workers of the run; the address and the key they need."""
        if self._listener is None:
            self._listener = Listener(family="AF_UNIX", backlog=_BACKLOG, authkey=self._key)
            threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()
        return str(self._listener.address), self._key.hex()

    def close(self) -> None:
        """Stop the servers. A start that hangs is left to the watchdog, which ends them too."""
        if self._listener is not None:
            self._listener.close()
        if self._lock.acquire(timeout=_CLOSE_SECONDS):
            try:
                if self._stack is not None:
                    self._stack.stop()
                self._closing.close()
            finally:
                self._lock.release()

    def _serve(self, listener: Listener) -> None:
        while True:
            try:
                with listener.accept() as caller:
                    caller.send(self._answer(caller.recv()))
            except EOFError:  # a worker that went away while it waited
                continue
            except OSError:  # closed
                return

    def _answer(self, asked: Asked) -> tuple[str, str]:
        try:
            if asked == "s3":
                return "up", self.lake_on_s3().model_dump_json()
            return "up", self.stack(spark=asked == "spark").endpoints.model_dump_json()
        except Exception as problem:  # noqa: BLE001  the worker that asked says it
            return "down", str(problem)


@contextlib.contextmanager
def _uncounted() -> Iterator[None]:
    """Keep coverage out of the Python processes that Spark starts."""
    setting = os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    try:
        yield
    finally:
        if setting is not None:
            os.environ["COVERAGE_PROCESS_CONFIG"] = setting


def ask_keeper(address: str, key: str, asked: Asked) -> str:
    """What a worker of the run calls: wait for the servers; where they are, as JSON."""
    with contextlib.closing(Client(address, "AF_UNIX", bytes.fromhex(key))) as line:
        line.send(asked)
        state, text = line.recv()
    if state != "up":
        raise RuntimeError(f"the run's servers could not be started: {text}")
    return str(text)
