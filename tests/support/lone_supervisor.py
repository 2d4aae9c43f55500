"""A supervisor as a process of its own, for tests that kill it: ``DO PIDS ROOT [KILL_FILE]``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from perago.worker import cgroups
from support.memory_worker import MemoryWorker

if __name__ == "__main__":
    do, pids, root, *kill_file = sys.argv[1:]
    if kill_file:
        cgroups._KILL = kill_file[0]
    with MemoryWorker(Path(root)) as worker:
        worker.begin(do, pids=pids)
        time.sleep(300)
