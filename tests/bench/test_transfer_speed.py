"""How fast a projection moves, against the plain SDK on one thread, in one run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from perago.protocol.workspace import StagingBranch
from perago.transfer.engine import Engine
from perago.transfer.inventory import Projection, project
from perago.transfer.plan import build_sync_plan
from perago.transfer.scan import scan
from support.lake_repository import LakeRepository

pytestmark = [pytest.mark.bench, pytest.mark.servers, pytest.mark.timeout(600)]

OURS, THEIRS, SIZE, ROUNDS = 2_000, 200, 10_240, 3


def per_second(count: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def sdk_upload(lake: LakeRepository, folder: Path) -> None:
    for path in sorted(folder.iterdir())[:THEIRS]:
        lake.client.objects_api.upload_object(
            lake.repository, "main", f"theirs/{path.name}", content=path.read_bytes()
        )


def sdk_download(lake: LakeRepository, target: Path) -> None:
    target.mkdir()
    for number in range(THEIRS):
        key = f"theirs/{number:05}"
        content = lake.client.objects_api.get_object(lake.repository, "main", key)
        (target / f"{number:05}").write_bytes(content)


def upload(lake: LakeRepository, folder: Path) -> None:
    plan = build_sync_plan(
        projection=Projection({}, {}), tree=scan(folder), prefix="ours", is_changed=lambda _: True
    )
    Engine(lake.objects).stage(plan, StagingBranch(lake.repository, "main"), folder)


def download(lake: LakeRepository, target: Path) -> None:
    target.mkdir()
    projection = project(lake.objects.list(lake.repository, "main", "ours/"), "ours")
    fetched = Engine(lake.objects).download(lake.repository, "main", projection, target)
    assert len(fetched) == OURS


def test_small_objects_against_the_plain_sdk(lake: LakeRepository, tmp_path: Path) -> None:
    """Rounds are interleaved, so that a busy moment hits both; the best of each counts."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(OURS):
        (folder / f"{number:05}").write_bytes(os.urandom(SIZE))
    rates: dict[str, list[float]] = {"our up": [], "our down": [], "SDK up": [], "SDK down": []}
    for number in range(ROUNDS):
        rates["our up"].append(per_second(OURS, partial(upload, lake, folder)))
        rates["SDK up"].append(per_second(THEIRS, partial(sdk_upload, lake, folder)))
        ours, theirs = tmp_path / f"ours-{number}", tmp_path / f"theirs-{number}"
        rates["our down"].append(per_second(OURS, partial(download, lake, ours)))
        rates["SDK down"].append(per_second(THEIRS, partial(sdk_download, lake, theirs)))
    best = {name: max(values) for name, values in rates.items()}
    print("\nobjects of 10 KB per second, best of", ROUNDS)
    for way in ("up", "down"):
        ours_best, sdk_best = best[f"our {way}"], best[f"SDK {way}"]
        print(f"  {way:5} {ours_best:7.0f}  SDK {sdk_best:7.0f}  ratio {ours_best / sdk_best:.1f}")
