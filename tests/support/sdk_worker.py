"""The SDK's own task handler, to measure beside ours; it spawns a process per worker."""

from __future__ import annotations

import os
import sys
from typing import Any

from conductor.client.automator.task_handler import TaskHandler
from conductor.client.configuration.configuration import Configuration
from conductor.client.worker.worker import Worker


def run(task: Any) -> dict[str, Any]:
    return {"result": {"note": "new", "pid": os.getpid()}}


def main(domain: str, workers: int) -> None:
    handler = TaskHandler(
        workers=[
            Worker(task_definition_name="w_plain", execute_function=run, domain=domain)
            for _ in range(workers)
        ],
        configuration=Configuration(),
        scan_for_annotated_workers=False,
    )
    handler.start_processes()
    print("started", flush=True)
    handler.join_processes()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
