"""Run examples of the gallery on real servers: ``python examples/run.py incremental_load``.

Each folder below an example's ``data`` is a day: its files are committed, and the workflow runs on
that commit. A day whose name ends in ``.refused`` must fail and publish nothing. Without names, all
examples run. Everything lives in temporary folders and is gone afterwards.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from backstage.servers import BRANCH, Lake
from backstage.show import say, short, title
from backstage.worker import Worker

from perago.dev import Endpoints, Stack
from perago.errors import PeragoError

EXAMPLES = Path(__file__).parent
GALLERY = sorted(path.parent.name for path in EXAMPLES.glob("*/workflow.json"))
REFUSED = ".refused"
# What a worker finds by itself where the extra `delta` is installed (docs/spark-tasks.md).
DELTA = [
    *["--packages", "io.delta:delta-spark_4.1_2.13:4.1.0"],
    *["--conf", "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"],
    *[
        "--conf",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ],
    *["--conf", "spark.databricks.delta.snapshotPartitions=2"],
]
NEEDS_DELTA = {"customer_history"}
# The default is made for clusters.
SMALL = ["--conf", "spark.sql.shuffle.partitions=2"]
PATIENCE_SECONDS = 300


class Example:
    """One folder of the gallery, in a repository of its own."""

    def __init__(self, name: str, endpoints: Endpoints, worker: Worker) -> None:
        self.folder = EXAMPLES / name
        self._worker = worker
        self._endpoints = endpoints
        self._lake = Lake(endpoints, name.replace("_", "-"))

    def run(self) -> None:
        """Run the workflow on every day, in order; raises ``SystemExit`` if one goes wrong."""
        self._lake.create()
        inputs = {path.name: self._pin_input(path) for path in sorted(self._folders("inputs"))}
        for day in sorted(self._folders("data")):
            self._run_day(day, inputs)

    def _folders(self, name: str) -> list[Path]:
        return [path for path in (self.folder / name).glob("*") if path.is_dir()]

    def _pin_input(self, folder: Path) -> dict[str, str]:
        """Commit the files of a read-only input to a repository of their own."""
        other = Lake(self._endpoints, f"{self._lake.repository}-{folder.name}")
        other.create()
        return _workspace(other, other.add_tree(folder, f"the input {folder.name}"))

    def _run_day(self, day: Path, inputs: dict[str, Any]) -> None:
        name = day.name.removesuffix(REFUSED)
        landed = self._lake.add_tree(day, f"what landed on {name}")
        began = time.monotonic()
        given = {"workspace": _workspace(self._lake, landed), "day": name, "inputs": inputs}
        ended = self._workflow(given)
        seconds = f"{time.monotonic() - began:.0f} s"
        head = self._lake.head()
        if day.name.endswith(REFUSED):
            if ended["status"] == "COMPLETED" or head != landed:
                raise SystemExit(f"{name} was to be refused:\n{json.dumps(ended, indent=2)}")
            say(f"   {name}: refused, {BRANCH} stays at {short(head)}   {seconds}")
            say(f"      {_reason(ended)}")
            return
        if ended["status"] != "COMPLETED":
            raise SystemExit(f"{name} failed: {_reason(ended)}\n{self._worker.tail()}")
        say(f"   {name}: {short(landed)} → {short(head)}   {seconds}")
        say(f"      {json.dumps(ended['output']['result'])}")

    def _workflow(self, given: dict[str, Any]) -> dict[str, Any]:
        file = self.folder / "workflow.json"
        command = [sys.executable, "-m", "perago", "workflow", "run", str(file)]
        done = subprocess.run(
            [*command, "--json", "--timeout", str(PATIENCE_SECONDS), "--input", json.dumps(given)],
            env=self._worker.environment,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_SECONDS,
            check=False,
        )
        try:
            ended: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise SystemExit(f"{done.stderr}\n{self._worker.tail()}") from None
        return ended


def _workspace(lake: Lake, ref: str) -> dict[str, str]:
    return {"repository": lake.repository, "branch": BRANCH, "ref_type": "commit", "ref": ref}


def _reason(ended: dict[str, Any]) -> str:
    return str(ended.get("reason") or ended["status"]).replace("\n", "\n      ")


def run(names: list[str]) -> None:
    title("Servers")
    say("   LakeFS and Conductor; Spark is the worker's own")
    modules = [f"{name}.tasks" for name in names]
    options = [*SMALL, *(DELTA if NEEDS_DELTA & set(names) else [])]
    with (
        tempfile.TemporaryDirectory(prefix="perago-examples-") as folder,
        Stack.up(Path(folder, "stack"), spark=False, ephemeral=True) as stack,
        Worker(
            stack.endpoints,
            Path(folder),
            "worker",
            stack.endpoints.conductor.server_url,
            [*modules, *options],
        ) as worker,
    ):
        for name in names:
            title(name)
            Example(name, stack.endpoints, worker).run()


def main() -> int:
    parser = argparse.ArgumentParser(description="Run examples of the gallery on real servers.")
    parser.add_argument("names", nargs="*", metavar="EXAMPLE", help=", ".join(GALLERY))
    names = parser.parse_args().names or GALLERY
    if unknown := set(names) - set(GALLERY):
        parser.error(f"no example {', '.join(sorted(unknown))}: there are {', '.join(GALLERY)}")
    try:
        run(names)
    except KeyboardInterrupt:
        return 130
    except PeragoError as error:
        raise SystemExit(f"{error}\nTry: {error.hint}") from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
