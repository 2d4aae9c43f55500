"""Small contents of the object cache: many in one file, found by an index that forgets."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perago.transfer import cache_packs
from perago.transfer.cache import ObjectCache
from perago.transfer.cache_packs import LARGEST_PACKED
from perago.transfer.inventory import RemoteObject
from support.cached import put, remote_of, take


def opened(folder: Path, limit: int = 1 << 30) -> ObjectCache:
    cache = ObjectCache(folder, limit)
    cache.prepare()
    return cache


def add(cache: ObjectCache, content: bytes) -> RemoteObject:
    """Add a content within a batch."""
    remote = remote_of(content)
    cache.add_read("repo", remote, remote.checksum, memoryview(content))
    return remote


def some(count: int, size: int = 1000) -> list[bytes]:
    return [os.urandom(size) for _ in range(count)]


def taken(cache: ObjectCache, contents: list[bytes]) -> int:
    """How many of these are in the cache; none of them may be another."""
    found = [take(cache, remote_of(content)) for content in contents]
    assert all(one in (None, content) for one, content in zip(found, contents, strict=True))
    cache.end_batch()
    return len(found) - found.count(None)


def open_files(cache: ObjectCache) -> int:
    """How many files of the cache this process has open, also those that were removed."""
    links = (os.path.realpath(path) for path in Path("/proc/self/fd").iterdir())
    return sum(link.startswith(str(cache.folder)) for link in links)


def test_what_one_download_adds_is_one_file(tmp_path: Path) -> None:
    cache, contents = opened(tmp_path / "cache"), some(500)
    for content in contents:
        add(cache, content)
    cache.end_batch()
    assert cache.space.status().files == 1
    assert taken(cache, contents) == 500
    assert taken(opened(cache.folder), contents) == 500


def test_a_pack_is_at_most_a_portion_of_the_limit(tmp_path: Path) -> None:
    cache, contents = opened(tmp_path / "cache", 64 * 10_000), some(95)
    for content in contents:
        add(cache, content)
    cache.end_batch()
    assert cache.space.status().files == 10
    assert taken(cache, contents) == 95


def test_a_content_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    cache, (content,) = opened(tmp_path / "cache"), some(1)
    add(cache, content)
    add(cache, content)
    cache.end_batch()
    put(opened(cache.folder), content)
    assert cache.space.status().size == 4096


@pytest.mark.parametrize("size", [LARGEST_PACKED, LARGEST_PACKED + 1])
def test_the_size_decides_where_a_content_is(tmp_path: Path, size: int) -> None:
    cache, (content,) = opened(tmp_path / "cache"), some(1, size)
    put(cache, content)
    (kind,) = {path.parts[-3] for path in cache.folder.glob("*/*/*")}
    assert kind == ("packs" if size == LARGEST_PACKED else "objects")
    assert taken(cache, [content]) == 1


def test_processes_that_add_at_once_find_what_the_others_added(tmp_path: Path) -> None:
    caches = [opened(tmp_path / "cache") for _ in range(4)]
    contents = some(400)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: add(caches[number % 4], contents[number]), range(400)))
    for cache in caches:
        cache.end_batch()
    # Two records that are written to one bucket at the same moment: one of them may be lost.
    assert taken(caches[0], contents) >= 398
    assert caches[0].space.status().files == 4


def test_an_index_that_is_full_forgets_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_packs, "_LARGEST_INDEX", 4 * cache_packs._BUCKET)
    cache, contents = opened(tmp_path / "cache"), some(200, 10)
    for content in contents:
        put(cache, content)
    assert 24 <= taken(cache, contents) <= 32
    assert taken(cache, contents[-8:]) == 8


def test_few_files_are_open_and_none_after_a_batch(tmp_path: Path) -> None:
    """Otherwise the room of packs that were evicted would not be free."""
    cache, contents = opened(tmp_path / "cache"), some(100)
    for content in contents:
        put(cache, content)
    assert open_files(cache) == 0
    for content in contents:
        assert take(cache, remote_of(content)) == content
    assert 1 < open_files(cache) <= 65
    cache.clear()
    cache.end_batch()
    assert open_files(cache) == 0
    assert taken(cache, contents) == 0
