"""A supervisor as a process of its own, for tests that kill it: ``DO PIDS ROOT``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from support.memory_worker import MemoryWorker

if __name__ == "__main__":
    do, pids, root = sys.argv[1:]
    with MemoryWorker(Path(root)) as worker:
        worker.begin(do, pids=pids)
        time.sleep(300)
