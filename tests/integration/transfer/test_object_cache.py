"""The object cache between two steps, with the checksums that a real LakeFS has."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from perago.transfer.cache import ObjectCache
from perago.transfer.inventory import PIECE
from support.lake_repository import LakeRepository

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]

# Around the size from which on objects are uploaded in parts.
SIZES = [1, 10_240, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 12_345]


class ReadError(AssertionError):
    """Something was read that should have been in the cache."""


def forbid_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: object, repository: str, ref: str, key: str, size: int, start: int = 0) -> None:
        raise ReadError(key)

    monkeypatch.setattr("perago.lakefs.objects.LakeFSObjects.read", read)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_second_step_takes_from_the_cache_what_the_first_one_published(
    lake: LakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ObjectCache(tmp_path / "cache", 1 << 30)
    cache.prepare()
    lake = replace(lake, cache=cache)
    lake.put("in/kept", os.urandom(100_000))
    lake.put("in/in parts", os.urandom(PIECE + 5))
    # Through the API: the S3 client does not take such a key.
    lake.put("in/odd\x7fkey", b"odd")
    ref = lake.commit()
    with lake.workspace(ref, "in") as first:
        for size in SIZES:
            (first.data / f"made-{size}").write_bytes(os.urandom(size))
        (first.data / "new\x7fodd").write_bytes(b"new and odd")
        expected = contents(first.data)
        _, branch = lake.stage(first, ref)
        published = lake.commit(branch)
    forbid_reads(monkeypatch)
    with lake.unfetched() as second:
        counts = second.fetch(lake.input(published), "in")
        assert contents(second.data) == expected
        assert counts["cache_hits"] == len(expected) == counts["objects"]
        assert not second.changes()


def test_an_object_that_another_tool_uploaded_in_parts_of_its_own_is_found_by_its_place(
    lake: LakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum cannot be computed from the content: only the place identifies it."""
    cache = ObjectCache(tmp_path / "cache", 1 << 30)
    cache.prepare()
    lake = replace(lake, cache=cache)
    with monkeypatch.context() as other:
        for module in ("transfer.inventory", "lakefs.gateway", "lakefs.presigned", "lakefs.pieces"):
            other.setattr(f"perago.{module}.PIECE", 5 << 20)
        lake.put("in/file", os.urandom(PIECE + 5))
    ref = lake.commit()
    with lake.workspace(ref, "in") as first:
        expected = contents(first.data)
    forbid_reads(monkeypatch)
    with lake.workspace(ref, "in") as second:
        assert contents(second.data) == expected
        assert not second.changes()
