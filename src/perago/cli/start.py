"""``perago start``: run the tasks of a module as a Conductor worker."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer


def start(
    modules: Annotated[list[str], typer.Argument(metavar="MODULE[:task]…", help="Task modules.")],
) -> None:
    """Poll Conductor for the tasks of a module and run them, until SIGTERM or Ctrl-C."""
    from perago.settings import load_settings
    from perago.tasks.discover import load_tasks
    from perago.worker.logs import configure_logs
    from perago.worker.loop import build_worker

    configure_logs()
    stop = threading.Event()
    worker = build_worker(load_tasks(modules), load_settings(), stop)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    worker.run()
