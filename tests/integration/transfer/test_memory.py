"""Memory does not follow the size or the number of files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import measured
from support.lake_repository import LakeRepository

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

SMALL, LARGE = 40 << 20, 160 << 20
# Buffers that an allocator keeps differ from run to run; a copy of the object would be 120 MB.
TOLERANCE_MB = 60


def peak_mb(lake: LakeRepository, way: str, objects: list[tuple[str, int]], folder: Path) -> int:
    """The peak memory of a process that moves some objects."""
    folder.mkdir()
    order = {
        "way": way,
        "objects": objects,
        "folder": str(folder),
        "repository": lake.repository,
        "endpoint": lake.connection.endpoint,
        "access_key_id": lake.connection.access_key_id,
        "secret": lake.connection.secret_access_key.get_secret_value(),
    }
    done = subprocess.run(
        [sys.executable, measured.__file__],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    "key", ["object", pytest.param("through\tthe API", marks=pytest.mark.slow)]
)
def test_memory_does_not_grow_with_the_size_of_an_object(
    lake: LakeRepository, tmp_path: Path, key: str
) -> None:
    """A client that held whole files would grow by the size of the object, twice for an upload."""
    small, large = [(f"small {key}", SMALL)], [(f"large {key}", LARGE)]
    up = [
        peak_mb(lake, "up", small, tmp_path / "up-small"),
        peak_mb(lake, "up", large, tmp_path / "up-large"),
    ]
    down = [
        peak_mb(lake, "down", small, tmp_path / "down-small"),
        peak_mb(lake, "down", large, tmp_path / "down-large"),
    ]
    assert (tmp_path / "down-large" / "0").stat().st_size == LARGE
    assert up[1] - up[0] < TOLERANCE_MB, f"peaks of uploads: {up} MB"
    assert down[1] - down[0] < TOLERANCE_MB, f"peaks of downloads: {down} MB"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_middling_objects(
    lake: LakeRepository, tmp_path: Path
) -> None:
    """Thirty-two threads with an object of 12 MB each would hold 384 MB, twice while joining."""
    few = [(f"few/{number}", 12 << 20) for number in range(4)]
    many = [(f"many/{number}", 12 << 20) for number in range(32)]
    for way in ("up", "down"):
        peaks = [
            peak_mb(lake, way, few, tmp_path / f"{way}-few"),
            peak_mb(lake, way, many, tmp_path / f"{way}-many"),
        ]
        assert peaks[1] < peaks[0] + 200, f"peaks {way}: {peaks} MB"
