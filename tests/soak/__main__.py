"""Run a soak: ``PYTHONPATH=tests python -m soak --minutes 30``.

Exits with 0 if no invariant was violated and nothing is left, else with 1.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from soak.chaos import Chaos
from soak.collecting import collect
from soak.findings import MATRICES, Findings, read_matrix
from soak.fleet import SLOTS, WORKERS, Fleet, fleet, retried
from soak.report import write_report

_SETTLE_SECONDS = 600.0
_TICK_SECONDS = 0.5
# More than there are slots: workers are never idle, and some workflows wait.
_IN_FLIGHT = 2 * WORKERS * SLOTS
_SHOW_SECONDS = 60.0


def main() -> int:
    """Run the soak that the command line asks for; the exit code."""
    options = _options()
    findings = Findings(options.seed, options.minutes)
    for name in MATRICES:
        file = options.folder / f"{name}.jsonl"
        if file.exists():
            findings.matrices[name] = read_matrix(file)
    started = time.monotonic()
    with fleet(options.seed) as running:
        chaos = Chaos(running, options.seed)
        for _ in range(WORKERS):
            running.start_worker()
        running.begun = time.monotonic()
        try:
            chaos.start()
            _work(running, chaos, options.minutes * 60, options.workflows)
        finally:
            chaos.stop()
        _settle(running)
        _stop_workers(running)
        collect(running, chaos.happened, findings)
        if not findings.is_clean:
            _keep_logs(running, options.folder / "logs")
    findings.seconds = round(time.monotonic() - started, 1)
    write_report(findings, options.folder)
    _say(_summary(findings, options.folder))
    return 0 if findings.is_clean else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="for how long faults happen")
    parser.add_argument("--workflows", type=int, default=2000, help="the most to start")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("build/soak"), help="for the report")
    return parser.parse_args()


def _work(running: Fleet, chaos: Chaos, seconds: float, most: int) -> None:
    """Keep the fleet busy while things go wrong."""
    shown = 0.0
    while running.now() < seconds:
        # Spread over the time, so that the last faults meet workflows too.
        due = most * running.now() / seconds
        while len(running.unfinished()) < _IN_FLIGHT and len(running.started) < due:
            running.start_workflow()
        retried(running.look)
        if running.now() - shown > _SHOW_SECONDS:
            shown = running.now()
            done = len(running.started) - len(running.unfinished())
            _say(f"{shown / 60:.0f} min: {done} workflows done, {len(chaos.happened)} faults")
        time.sleep(_TICK_SECONDS)


def _settle(running: Fleet) -> None:
    """Without further faults every workflow must end."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while running.unfinished() and time.monotonic() < deadline:
        running.note_workers_that_ended()
        if not running.alive():
            running.start_worker()
        retried(running.look)
        time.sleep(_TICK_SECONDS)
    lost = running.unfinished()
    running.problems += [f"workflow {item.id} did not end" for item in lost]


def _stop_workers(running: Fleet) -> None:
    """Drain them all; then one more start sweeps what killed ones left, as every start does."""
    running.start_worker()
    running.note_processes()
    for worker in running.alive():
        # 1 says that an outcome could not be delivered, which the faults may cause.
        if worker.stop() not in {0, 1}:
            running.problems.append(f"worker {worker.pid} ended badly: {worker.log_text()[-1000:]}")
    running.start_worker()
    for worker in running.alive():
        worker.stop()


def _keep_logs(running: Fleet, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for log in running.site.folder.glob("worker-*.log"):
        shutil.copy(log, folder)


def _summary(findings: Findings, folder: Path) -> str:
    lines = [
        f"workflows {findings.workflows}, attempts {findings.attempts}",
        f"faults {sum(findings.faults.values())}: {findings.faults}",
        f"violations {len(findings.violations)}, leftovers {findings.leftovers}",
        *(f"  {text[:500]}" for text in findings.violations[:20]),
        f"report: {folder / 'soak.html'}",
    ]
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
