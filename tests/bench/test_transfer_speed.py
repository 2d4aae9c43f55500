"""How fast a folder moves to LakeFS and back, beside other clients, in one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from support.bench.attempts_way import AttemptsWay
from support.bench.movers import (
    FolderMoved,
    Folders,
    Lakectl,
    Mover,
    Obstore,
    OwnProcess,
    Rclone,
    Sdk,
)
from support.bench.peers import Peer
from support.bench.results import Book
from support.bench.rounds import Contest, Value, hold, middle
from support.bench.table import OURS
from support.lake_repository import LakeRepository, a_new_repository
from support.lake_servers import BUCKET, lakefs_on_s3, lakefs_server

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]

COUNT, SIZE = 2_000, 10_240
GIGABYTE, HALF = 1 << 30, 512 << 20
LAKECTL = "lakectl -p 32"


def moved(
    lake: LakeRepository, movers: Mapping[str, Mover], rounds: int, count: int, size: int
) -> Contest:
    """Each round has a folder of its own, which each of them takes up and down."""
    folders, base = Folders(lake.root / "folders", count, size), lake.commit()
    contestants = {name: FolderMoved(mover, lake, base, folders) for name, mover in movers.items()}
    return hold(rounds, contestants)


def both_ways(contest: Contest) -> dict[str, Value | None]:
    return {way: contest.ratio(LAKECTL, OURS, way) for way in ("up", "down")}


@pytest.mark.bench("download-2000", "upload-2000")
def test_small_objects(
    lake: LakeRepository, lakectl: Peer, rclone: Peer, rounds: int, book: Book
) -> None:
    movers: dict[str, Mover] = {
        OURS: AttemptsWay(lake.root / "caches"),
        f"{OURS}, cache off": AttemptsWay(None),
        LAKECTL: Lakectl(lakectl),
        "rclone, 32 transfers": Rclone(rclone),
        "obstore, 32 threads": Obstore(),
        "LakeFS SDK, 1 thread": Sdk(),
    }
    contest = moved(lake, movers, rounds, COUNT, SIZE)
    for way, row in {"down": "download-2000", "up": "upload-2000"}.items():
        only = Contest({way: contest.samples[way]}, contest.absent)
        book.record(row, only, {way: contest.ratio(LAKECTL, OURS, way)})


@pytest.mark.bench("large-object")
def test_one_large_object(lakectl: Peer, rounds: int, book: Book, tmp_path: Path) -> None:
    """On a LakeFS of its own, which takes its gigabytes along when it ends."""
    ours = OwnProcess(tmp_path / "caches")
    with lakefs_server(tmp_path / "server") as server:
        lake = a_new_repository(server.endpoint.connection, tmp_path)
        contest = moved(lake, {OURS: ours, LAKECTL: Lakectl(lakectl)}, rounds, 1, GIGABYTE)
    # Two processes a round, of which the larger one counts.
    peaks = [max(pair) for pair in zip(ours.megabytes[::2], ours.megabytes[1::2], strict=True)]
    contest.samples["MB"] = {OURS: peaks}
    book.record("large-object", contest, {**both_ways(contest), "memory": middle(peaks)})


@pytest.mark.bench("s3-small", "s3-large")
@pytest.mark.usefixtures("s3_program")
def test_on_an_s3_store(lakectl: Peer, rounds: int, book: Book, tmp_path: Path) -> None:
    """Where bytes can go straight to the store, past LakeFS."""
    with lakefs_on_s3(tmp_path / "server") as server:
        for row, (count, size) in {"s3-small": (COUNT, SIZE), "s3-large": (1, HALF)}.items():
            root = tmp_path / row
            root.mkdir()
            lake = a_new_repository(server.endpoint.connection, root, f"s3://{BUCKET}/")
            movers: dict[str, Mover] = {
                OURS: AttemptsWay(root / "caches"),
                LAKECTL: Lakectl(lakectl),
            }
            contest = moved(lake, movers, rounds, count, size)
            book.record(row, contest, both_ways(contest))
