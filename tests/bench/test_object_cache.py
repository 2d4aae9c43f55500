"""What the object cache saves the second step of a workflow on a host."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perago.transfer.cache import ObjectCache
from support.bench.results import Book
from support.bench.rounds import hold
from support.bench.table import OURS
from support.lake_repository import LakeRepository

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

COUNT, CHANGED, SIZE = 1_000, 100, 10_240


def step(lake: LakeRepository, ref: str) -> tuple[dict[str, float], str]:
    """Fetch, change some files and stage them; the seconds of each, and the commit."""
    started = time.perf_counter()
    with lake.unfetched() as workspace:
        workspace.fetch(lake.input(ref), "")
        fetched = time.perf_counter()
        for path in sorted(workspace.data.iterdir())[:CHANGED]:
            path.write_bytes(os.urandom(SIZE))
        changed = time.perf_counter()
        _, branch = lake.stage(workspace, ref)
        staged = time.perf_counter()
    return {"download": fetched - started, "stage": staged - changed}, lake.commit(branch)


@pytest.mark.bench("object-cache")
def test_the_second_step_beside_the_first(
    lake: LakeRepository, rounds: int, book: Book, tmp_path: Path
) -> None:
    """Each round has an empty cache first, and then what the first step left in it."""
    for number in range(COUNT):
        lake.put(f"{number:05}", os.urandom(SIZE))
    ref = lake.commit()

    def two_steps(number: int) -> dict[str, float]:
        cache = ObjectCache(tmp_path / f"cache-{number}", 1 << 30)
        cache.prepare()
        cached = replace(lake, cache=cache)
        first, published = step(cached, ref)
        second, _ = step(cached, published)
        return {
            f"{phase}, {name}": seconds
            for name, found in {"first step": first, "second step": second}.items()
            for phase, seconds in found.items()
        }

    def without_a_cache(_: int) -> dict[str, float]:
        found = step(lake, ref)[0]
        return {f"{phase}, first step": seconds for phase, seconds in found.items()}

    contest = hold(rounds, {OURS: two_steps, f"{OURS}, cache off": without_a_cache})
    first, second = "download, first step", "download, second step"
    faster = contest.ratio(OURS, OURS, first, beside=second)
    book.record("object-cache", contest, {"second step": faster})
