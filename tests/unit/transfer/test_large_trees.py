"""Trees of many files take a time that grows with their number, and not with its square."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perago import forbid_glob, require_dir, require_file, require_glob
from perago.tasks.guardrails import Guardrail, check_folder
from perago.transfer.inventory import project
from perago.transfer.paths import FileSystem, check_projection, check_publishable
from perago.transfer.removal import remove_tree
from perago.transfer.scan import scan
from support.definitions import no_warning
from support.trees import remote

GUARDRAILS: list[Guardrail] = [
    require_glob("**/*1*9*.json"),
    forbid_glob("**/*a*a*a*b"),
    require_file("0/0.json"),
    require_dir("1"),
]


def make_files(folder: Path, number: int) -> None:
    for outer in range(number // 500):
        (folder / str(outer)).mkdir(parents=True)
        for inner in range(500):
            file = folder / str(outer) / f"{inner}.json"
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY))


def seconds_of(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def measure(folder: Path, number: int) -> dict[str, float]:
    make_files(folder, number)
    tree = scan(folder)
    projection = project(map(remote, tree.files), "")
    return {
        "scan": seconds_of(lambda: scan(folder)),
        "guardrails": seconds_of(lambda: check_folder(GUARDRAILS, folder, no_warning)),
        "publishable": seconds_of(lambda: check_publishable(tree.files, tree.folders, "prefix")),
        "projection": seconds_of(lambda: check_projection(projection, folder, FileSystem())),
        "removal": seconds_of(lambda: remove_tree(folder)),
    }


@pytest.mark.slow
def test_thirty_thousand_files_cost_no_more_each_than_three_thousand(tmp_path: Path) -> None:
    few, many = measure(tmp_path / "few", 3_000), measure(tmp_path / "many", 30_000)
    # A square would be 100 times as much.
    slow = {name: (few[name], many[name]) for name in few if many[name] > 40 * few[name]}
    assert slow == {}
