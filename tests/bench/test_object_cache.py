"""What the object cache saves the second step of a workflow on a host."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from perago.transfer.cache import ObjectCache
from support.lake_repository import LakeRepository

pytestmark = [pytest.mark.bench, pytest.mark.servers, pytest.mark.timeout(600)]

COUNT, CHANGED, SIZE, ROUNDS = 1_000, 100, 10_240, 5


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


def test_the_second_step_beside_the_first(lake: LakeRepository, tmp_path: Path) -> None:
    """Each round has an empty cache first, and then what the first step left in it."""
    for number in range(COUNT):
        lake.put(f"{number:05}", os.urandom(SIZE))
    ref = lake.commit()
    seconds: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        cache = ObjectCache(tmp_path / f"cache-{number}", 1 << 30)
        cache.prepare()
        cached = replace(lake, cache=cache)
        without, _ = step(lake, ref)
        first, published = step(cached, ref)
        second, _ = step(cached, published)
        for name, times in {"off": without, "first": first, "second": second}.items():
            for phase, value in times.items():
                seconds.setdefault(f"{name} {phase}", []).append(value)
    print(f"\n{COUNT} objects of 10 KB, {CHANGED} changed; median (and spread) of {ROUNDS} rounds")
    for name, values in seconds.items():
        print(f"  {name:16} {median(values):6.3f} s ({min(values):.3f} to {max(values):.3f})")
    ratio = median(seconds["first download"]) / median(seconds["second download"])
    print(f"  download, first step : second step = {ratio:.1f} : 1")
