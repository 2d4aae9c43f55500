"""A worker over an in-memory Conductor as a process, for tests of stops: ``PIDS STATUS ROOT``.

It runs one attempt until a signal stops it, then writes the attempt's status.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from perago.observability.metrics import WorkerMetrics
from perago.tasks.discover import load_tasks
from perago.testing import TaskSettings
from perago.worker.context import WorkerContext
from perago.worker.supervisor import Supervisor
from support.memory_worker import LockedConductor

if __name__ == "__main__":
    pids, status, root = sys.argv[1:]
    conductor: Any = LockedConductor()
    definitions = load_tasks(["hostile_bodies"])
    context = WorkerContext(conductor, conductor, None, Path(root), None, WorkerMetrics())
    supervisor = Supervisor(context, definitions, ["hostile_bodies"], slots=1, grace_seconds=60.0)
    payload = {"params": {"do": "wait", "pids": pids}}
    workflow = conductor.start(TaskSettings("h_plain"), payload)
    code = supervisor.run()
    attempts = conductor.memory.workflow(workflow).tasks
    Path(status).write_text(" ".join(task.status for task in attempts), encoding="utf-8")
    sys.exit(code)
