"""``make demo``: two days of a web shop on real servers, and a worker that dies on the second.

Everything lives in temporary folders and is gone afterwards, except the report (and, with
``--keep``, the servers). Only what was built or fetched stays in the cache.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from backstage.gate import Gate, Report
from backstage.servers import BRANCH, Conductor, Lake, has_ended
from backstage.show import Show, counted, say, short, show_history, size, title
from backstage.worker import Worker
from webshop import data, workflow

from perago.dev import Stack
from perago.errors import PeragoError

ROOT = Path(__file__).parents[1]
FIRST_DAY, SECOND_DAY = date(2026, 3, 13), date(2026, 3, 14)
DEFAULT_ROWS = 100_000
LEAST_ROWS = 1_000
# Nothing in here may hang for ever; larger days get more time.
PATIENCE_SECONDS = 300.0
SECONDS_PER_ROW = 0.001


class Demo:
    """The acts, each a method; :func:`main` puts them in order."""

    def __init__(self, stack: Stack, folder: Path, rows: int, out: Path) -> None:
        self.endpoints = stack.endpoints
        self.folder = folder
        self.rows = rows
        self.out = out
        self.lake = Lake(stack.endpoints, "webshop")
        self.conductor = Conductor(stack.endpoints)
        self.show = Show(self.lake, self.conductor)
        self.patience = PATIENCE_SECONDS + SECONDS_PER_ROW * rows

    def land_export(self, day: date) -> str:
        """The shop's system puts a day's export into the lake; the commit."""
        files = data.write_export(self.folder / str(day), day, self.rows)
        ref = self.lake.add(files, f"raw/landing/{day}", f"export of {day}")
        total = size(sum(file.stat().st_size for file in files))
        objects = counted(len(files), "object")
        say(f"   the export: {self.rows:,} lines in {objects}, {total}; commit {short(ref)}")
        return ref

    def start_workflow(self, day: date, ref: str) -> str:
        workspace = {
            "repository": self.lake.repository,
            "branch": BRANCH,
            "ref_type": "commit",
            "ref": ref,
        }
        payload = {"workspace": workspace, "day": str(day), "folder": str(self.out)}
        workflow_id = self.conductor.start(workflow.definition(), payload)
        say(f"   workflow {workflow_id}:")
        say("   ingest (files) → clean (Spark) → sales (Spark) → report (files, read-only)")
        return workflow_id

    def follow(
        self, workflow_id: str, worker: Worker, until: Callable[[], bool] = lambda: False
    ) -> None:
        """Show what the worker does until the workflow has completed, or until something else."""
        deadline = time.monotonic() + self.patience
        ended: dict[str, Any] | None = None
        while True:
            for line in worker.new_lines():
                self.show.tell(line)
            if until() or (ended and not self.show.in_attempt):
                break
            if worker.has_died() and not until():
                raise SystemExit(f"the worker died:\n{worker.tail()}")
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"workflow {workflow_id} takes longer than {self.patience:.0f} s:\n"
                    f"{worker.tail()}"
                )
            found = self.conductor.workflow(workflow_id)
            ended = found if has_ended(found) else None
            time.sleep(0.2)
        for line in worker.new_lines():
            self.show.tell(line)
        if ended and ended["status"] != "COMPLETED":
            reason = ended.get("reasonForIncompletion", "")
            raise SystemExit(f"workflow {workflow_id} is {ended['status']}: {reason}")

    def first_day(self, worker: Worker) -> None:
        title(f"1. A day: {FIRST_DAY:%A} {FIRST_DAY}")
        self.lake.create()
        ref = self.land_export(FIRST_DAY)
        self.follow(self.start_workflow(FIRST_DAY, ref), worker)

    def second_day(self, worker: Worker, gate: Gate) -> str:
        """The worker of this act is killed when it wants to report that `clean` is done."""
        title(f"2. The next day, and a worker that dies: {SECOND_DAY:%A} {SECOND_DAY}")
        ref = self.land_export(SECOND_DAY)
        gate.stop_report(self._is_clean_done, then=worker.kill)
        workflow_id = self.start_workflow(SECOND_DAY, ref)
        self.follow(workflow_id, worker, until=gate.has_stopped)
        if gate.stopped is None:
            raise SystemExit("the workflow ended before the worker was killed")
        self._look_at_wreck(gate.stopped, worker)
        return workflow_id

    def _is_clean_done(self, report: Report) -> bool:
        if report["status"] != "COMPLETED":
            return False
        return bool(self.conductor.task(report["taskId"])["taskDefName"] == "clean_events")

    def _look_at_wreck(self, report: Report, worker: Worker) -> None:
        abandoned = report["outputData"]["workspace"]["ref"]
        task = self.conductor.task(report["taskId"])
        say()
        say(f"   KILLED  worker {worker.process.pid}, by SIGKILL, as it went to report", "red")
        say(f"   LakeFS     {BRANCH} is at {short(self.lake.head())}: attempt 1 is published")
        say(f"   Conductor  attempt 1 is {task['status']}: it was never told")
        say(
            f"   so commit {short(abandoned)} is abandoned: there, and nobody answers for it",
            "yellow",
        )

    def recover(self, workflow_id: str, worker: Worker, report: Report) -> None:
        title("3. Another worker, and the retry")
        seconds = self._await_timeout(workflow_id, report["taskId"])
        say(f"   Conductor waited for the lease to run out ({seconds:.0f} s more), and tries again")
        self.follow(workflow_id, worker)
        abandoned = report["outputData"]["workspace"]["ref"]
        tagged = [tag for tag, ref in self.lake.tags().items() if ref == abandoned]
        if not tagged or abandoned in [commit.id for commit in self.lake.history()]:
            raise SystemExit(f"the abandoned commit {abandoned} was not replaced")

    def _await_timeout(self, workflow_id: str, task_id: str) -> float:
        began = time.monotonic()
        while self.conductor.task(task_id)["status"] != "TIMED_OUT":
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise SystemExit(f"Conductor does not notice that task {task_id} is abandoned")
            self.conductor.look_now(workflow_id)
            time.sleep(0.5)
        return time.monotonic() - began

    def finish(self, stack: Stack, workflow_id: str, *, keep: bool) -> None:
        title(f"4. The history of branch {BRANCH}")
        show_history(self.lake)
        title("Where to look next")
        for day in (FIRST_DAY, SECOND_DAY):
            say(f"   {_relative(self.out / f'report-{day}.html')}")
        say("   examples/webshop/       the four tasks and their workflow")
        say("   docs/transaction.md     what was just shown, and where it ends")
        say("   docs/spark-tasks.md     what a Spark task does with its branch")
        if not keep:
            say("   make demo ROWS=1_000_000, or .venv/bin/python examples/demo.py --keep")
            return
        endpoints, folder = stack.detach(), stack.data_dir
        say()
        say("   The servers go on running. Both are built without web pages; these are their APIs:")
        say(f"   LakeFS     {endpoints.lakefs.endpoint}/api/v1/repositories/webshop")
        say(f"   Conductor  {endpoints.conductor.server_url}/workflow/{workflow_id}")
        say("   Their credentials, and how to end them and remove their data:")
        say(f"   .venv/bin/perago dev env  --data-dir {folder}")
        say(f"   .venv/bin/perago dev down --data-dir {folder}")


def main() -> int:
    options = parse(sys.argv[1:])
    # A closed terminal and `kill` take the same orderly way out as Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup, on purpose
            signal.signal(number, signal.default_int_handler)
    try:
        play(options.rows, options.out.absolute(), keep=options.keep)
    except KeyboardInterrupt:
        say("stopped")
        return 130
    except PeragoError as error:
        raise SystemExit(f"{error}\nTry: {error.hint}") from error
    return 0


def play(rows: int, out: Path, *, keep: bool) -> None:
    began = time.monotonic()
    title("Servers")
    say("   LakeFS, Conductor and Spark (built and fetched the first time, which takes minutes)")
    kept = Path(tempfile.mkdtemp(prefix="perago-demo-servers-")) if keep else None
    with (
        tempfile.TemporaryDirectory(prefix="perago-demo-") as folder,
        # One Spark for both workers: it starts next to Conductor, which takes longer, and
        # outlives the worker that is killed.
        Stack.up(kept or Path(folder, "stack"), ephemeral=True) as stack,
        Gate(stack.endpoints.conductor.server_url) as gate,
    ):
        say(f"   up after {time.monotonic() - began:.0f} s")
        demo = Demo(stack, Path(folder), rows, out)
        with Worker(stack.endpoints, Path(folder), "worker-1", gate.url) as worker:
            demo.first_day(worker)
            workflow_id = demo.second_day(worker, gate)
        assert gate.stopped is not None  # noqa: S101  narrows the type; second_day checked
        direct = stack.endpoints.conductor.server_url
        with Worker(stack.endpoints, Path(folder), "worker-2", direct) as worker:
            demo.recover(workflow_id, worker, gate.stopped)
        demo.finish(stack, workflow_id, keep=keep)
    say()
    say(f"done in {time.monotonic() - began:.0f} s")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--rows", type=_rows, default=DEFAULT_ROWS, help="lines in each day's export (%(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "demo", help="where the reports go"
    )
    parser.add_argument("--keep", action="store_true", help="leave the servers running")
    return parser.parse_args(arguments)


def _rows(text: str) -> int:
    try:
        rows = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if rows < LEAST_ROWS:
        raise argparse.ArgumentTypeError(f"a day has at least {LEAST_ROWS} lines, not {rows}")
    return rows


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


if __name__ == "__main__":
    sys.exit(main())
