"""How an attempt moves a folder, alone to be measured. As a program it does so once, in its order.

It imports no more than an executor does: the SDK of LakeFS alone would be half of its memory.
"""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects
from perago.protocol.identity import Attempt, Claim, Execution
from perago.protocol.workspace import StagingBranch, WorkspaceInput
from perago.transfer.cache import ObjectCache
from perago.transfer.engine import Engine
from perago.transfer.scan import scan
from perago.transfer.workspaces import LocalWorkspaces
from support.bench.rounds import level_memory, seconds_of
from support.measured import peak_kilobytes

# Where all movers put a folder, and how many objects each of them moves at once.
PREFIX = "up"
THREADS = 32


class BenchRepository(Protocol):
    """A repository, and a folder for workspaces."""

    @property
    def connection(self) -> LakeFSConnection: ...
    @property
    def repository(self) -> str: ...
    @property
    def root(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class OrderedRepository:
    """The repository that an order names."""

    connection: LakeFSConnection
    repository: str
    root: Path


@dataclass(frozen=True, slots=True)
class AttemptsWay:
    """The phases `stage` and `download` of an attempt, with a new cache each time."""

    # Where the caches are; None: without a cache.
    caches: Path | None

    def up(self, bench: BenchRepository, base: str, folder: Path) -> tuple[float, str]:
        branch = StagingBranch(bench.repository, f"bench-{uuid.uuid4().hex}")
        commits: list[str] = []
        with (
            closing(LakeFSControl(bench.connection)) as control,
            self._workspaces(bench).open(_execution()) as workspace,
        ):
            workspace.fetch(_input(bench, base), PREFIX)
            shutil.copytree(
                folder, workspace.data, copy_function=shutil.copyfile, dirs_exist_ok=True
            )
            plan = workspace.changes()

            def stage() -> None:
                control.create_branch(branch, base)
                workspace.stage(plan, branch)
                commits.append(control.commit(branch, "bench", {}).commit)

            level_memory(bench.root, size_of(folder))
            return seconds_of(stage), commits[0]

    def down(self, bench: BenchRepository, ref: str, target: Path, size: int) -> tuple[float, int]:
        counts: dict[str, int] = {}
        with self._workspaces(bench).open(_execution()) as workspace:
            level_memory(bench.root, size)
            seconds = seconds_of(lambda: counts.update(workspace.fetch(_input(bench, ref), PREFIX)))
        return seconds, counts["objects"]

    def _workspaces(self, bench: BenchRepository) -> LocalWorkspaces:
        cache = None
        if self.caches is not None:
            cache = ObjectCache(self.caches / uuid.uuid4().hex)
            cache.prepare()
        engine = Engine(LakeFSObjects(bench.connection), THREADS, cache)
        return LocalWorkspaces(bench.root / "workspaces", engine)


def size_of(folder: Path) -> int:
    return sum(file.size for file in scan(folder).files.values())


def _execution() -> Execution:
    return Execution(Claim(Attempt("bench", "bench", 0, "step"), "claim"), uuid.uuid4().hex)


def _input(bench: BenchRepository, ref: str) -> WorkspaceInput:
    return WorkspaceInput(repository=bench.repository, branch="main", ref_type="commit", ref=ref)


def main() -> None:
    """Read what to move, and where LakeFS is, from the standard input; tell seconds and memory."""
    order = json.load(sys.stdin)
    connection = LakeFSConnection(
        order["endpoint"], order["access_key_id"], SecretStr(order["secret"])
    )
    bench = OrderedRepository(connection, order["repository"], Path(order["root"]))
    mover, folder = AttemptsWay(Path(order["caches"])), Path(order["folder"])
    moved: tuple[float, str | int]
    if order["way"] == "up":
        moved = mover.up(bench, order["ref"], folder)
    else:
        moved = mover.down(bench, order["ref"], folder, order["size"])
    told = {"seconds": moved[0], "found": moved[1], "megabytes": peak_kilobytes() // 1024}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
