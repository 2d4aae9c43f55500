"""The object cache: what it gives is right whatever happened to its files."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from perago.errors import BackendUnavailableError
from perago.protocol.workspace import StagingBranch
from perago.testing.lake import InMemoryLake
from perago.transfer import cache as cache_module
from perago.transfer import cache_packs, downloading, inventory
from perago.transfer.cache import CachedObject, ObjectCache
from perago.transfer.cache_packs import PACKS, PackedObject
from perago.transfer.engine import Engine, FetchedProjection
from perago.transfer.inventory import Digest, RemoteObject, Source
from support import cached
from support.cached import content_of, put, remote_of, take

LIMIT = 1 << 30
SMALL, LARGE = content_of(1), content_of(7)
FILES = {"one": SMALL, "in/two": b"two", "large": LARGE, "empty": b""}
REPOSITORY = "repo"
md5 = partial(hashlib.md5, usedforsecurity=False)
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return opened(tmp_path / "cache")


def opened(folder: Path, limit: int | None = LIMIT, **options: Any) -> ObjectCache:
    made = ObjectCache(folder, limit, **options)
    made.prepare()
    return made


def files_of(cache: ObjectCache) -> list[Path]:
    """The files with entries, which are two levels below the folder."""
    return sorted(path for path in cache.folder.glob("*/*/*") if path.parts[-3] != "aliases")


def file_of(cache: ObjectCache, content: bytes) -> Path:
    """The file that has an entry: a pack, or a file of its own."""
    remote = remote_of(content)
    found = cache.find(REPOSITORY, remote)
    cache.end_batch()
    if isinstance(found, PackedObject):
        return cache.folder / PACKS / found.pack.name[:2] / found.pack.name
    assert isinstance(found, CachedObject)
    found.close()
    return Path(found.path)


class RecordedLake:
    """An in-memory lake with some files, workspaces of them, and the keys that were read."""

    def __init__(self, folder: Path, cache: ObjectCache) -> None:
        self.lake = InMemoryLake()
        self.lake.create_repository(REPOSITORY)
        files: dict[str, bytes | None] = {f"data/{path}": body for path, body in FILES.items()}
        self.ref = self.lake.write_and_commit(REPOSITORY, "main", files).id
        self.folder = folder
        self.cache = cache
        self.keys: list[str] = []
        self.objects = self.lake.objects
        self.engine = Engine(self, 4, cache)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.objects, name)

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        self.keys.append(key.removeprefix("data/"))
        return self.objects.read(repository, ref, key, size, start)

    def fetch(self, name: str, ref: str = "") -> tuple[Path, FetchedProjection]:
        data = self.folder / name
        data.mkdir()
        self.keys.clear()
        return data, self.engine.fetch(Source(REPOSITORY, ref or self.ref, "data"), data)


@pytest.fixture
def recorded(tmp_path: Path, cache: ObjectCache) -> RecordedLake:
    return RecordedLake(tmp_path, cache)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_what_was_downloaded_once_is_not_read_again(recorded: RecordedLake) -> None:
    _, first = recorded.fetch("first")
    assert sorted(recorded.keys) == sorted(FILES)
    assert first.counts() | {"bytes": 0} == {
        "objects": 4,
        "bytes": 0,
        "cache_hits": 0,
        "cache_hit_bytes": 0,
        "cache_misses": 3,
        "cache_evictions": 0,
    }
    data, second = recorded.fetch("second")
    assert recorded.keys == ["empty"]
    assert contents(data) == FILES
    size = sum(map(len, FILES.values()))
    assert second.counts() == {
        "objects": 4,
        "bytes": size,
        "cache_hits": 3,
        "cache_hit_bytes": size,
        "cache_misses": 0,
        "cache_evictions": 0,
    }
    digests = {path: file.digest for path, file in second.files.items()}
    assert digests == {path: file.digest for path, file in first.files.items()}
    assert not second.changes(time.time_ns())


def test_what_a_step_published_is_there_for_the_next_one(recorded: RecordedLake) -> None:
    data, fetched = recorded.fetch("first")
    (data / "one").write_bytes(b"changed")
    (data / "made").write_bytes(LARGE[:-1])
    recorded.lake.create_branch(StagingBranch(REPOSITORY, "staging"), recorded.ref)
    counts = recorded.engine.stage(
        fetched.changes(0), StagingBranch(REPOSITORY, "staging"), recorded.folder / "first"
    )
    assert counts == {"cache_evictions": 0}
    after, _ = recorded.fetch("second", "staging")
    assert recorded.keys == ["empty"]
    assert contents(after) == {**FILES, "one": b"changed", "made": LARGE[:-1]}


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
def test_a_digest_that_the_store_told_is_not_computed_again(
    cache: ObjectCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with monkeypatch.context() as without:
        without.setattr(cache_module, "Digest", None)
        cache.add_file(REPOSITORY, file, remote_of(content).checksum)
    cache.end_batch()
    assert take(cache, remote_of(content)) == content


def test_a_digest_that_was_wrong_is_found_out(cache: ObjectCache, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(LARGE[::-1])
    cache.add_file(REPOSITORY, file, remote_of(LARGE).checksum)
    cache.end_batch()
    assert take(cache, remote_of(LARGE)) is None
    assert files_of(cache) == []


@pytest.mark.parametrize("kind", ["downloaded", "uploaded"])
def test_a_forged_checksum_gives_nothing_of_another_repository(
    recorded: RecordedLake, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """LakeFS takes the checksum of a linked object as a client gives it."""
    data, _ = recorded.fetch("first")
    if kind == "uploaded":
        recorded.cache.clear()
        for path in FILES:
            recorded.cache.add_file(REPOSITORY, data / path)
        recorded.cache.end_batch()
    others = {f"data/{path}": bytes(len(body)) for path, body in FILES.items()}
    recorded.lake.create_repository("others")
    ref = recorded.lake.write_and_commit("others", "main", {**others}).id

    def forged(repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        for item in recorded.objects.list(repository, ref, prefix):
            body = FILES[item.key.removeprefix("data/")]
            yield RemoteObject(item.key, item.size, checksum=remote_of(body).checksum)

    monkeypatch.setattr(recorded, "list", forged, raising=False)
    folder = recorded.folder / "others"
    folder.mkdir()
    fetched = recorded.engine.fetch(Source("others", ref, "data"), folder)
    assert contents(folder) == {path: bytes(len(body)) for path, body in FILES.items()}
    assert fetched.counts()["cache_hits"] == 0
    # And what was read there is not taken for what is here.
    assert contents(recorded.fetch("again")[0]) == FILES


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
def test_an_entry_belongs_to_one_repository_of_one_server(
    cache: ObjectCache, content: bytes
) -> None:
    here = opened(cache.folder, server="https://lake.example/")
    remote = put(here, content)
    assert take(here, remote, "other") is None
    assert take(opened(cache.folder, server="https://other.example"), remote) is None
    assert take(opened(cache.folder, server="https://LAKE.example"), remote) == content


@pytest.mark.parametrize("written", [None, "1", "é"])
def test_a_cache_of_another_format_is_emptied(cache: ObjectCache, written: str | None) -> None:
    for content in (SMALL, LARGE):
        put(cache, content)
    format_file = cache.folder / "format"
    if written is None:
        format_file.unlink()
    else:
        format_file.write_text(written)
    again = opened(cache.folder)
    assert files_of(again) == []
    assert take(again, remote_of(SMALL)) is None
    put(again, SMALL)
    assert take(opened(cache.folder), remote_of(SMALL)) == SMALL


def test_a_body_that_writes_to_its_file_does_not_write_to_the_cache(recorded: RecordedLake) -> None:
    recorded.fetch("first")
    data, _ = recorded.fetch("second")
    for path in ("one", "large"):
        with (data / path).open("r+b") as file:
            file.write(b"written in place")
    data, _ = recorded.fetch("third")
    assert recorded.keys == ["empty"]
    assert contents(data) == FILES
    there = [*data.rglob("*"), *recorded.cache.folder.rglob("*")]
    assert all(item.is_dir() or item.stat().st_nlink == 1 for item in there)


def test_a_download_that_failed_is_not_counted_with_the_next_one(
    recorded: RecordedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.fetch("first")
    file_of(recorded.cache, b"two").unlink()
    with monkeypatch.context() as broken:
        broken.setattr(recorded, "read", lambda *_: iter([memoryview(b"no")]))
        with pytest.raises(BackendUnavailableError):
            recorded.fetch("failed")
    _, fetched = recorded.fetch("second")
    # The pack that was removed had both small files.
    assert fetched.counts()["cache_hits"] == 1
    assert fetched.counts()["cache_misses"] == 2


def test_folders_and_files_are_this_users_alone(recorded: RecordedLake) -> None:
    recorded.fetch("first")
    for path in (recorded.cache.folder, *recorded.cache.folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def flipped(path: Path) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    # As a disk that rots: no time stamp shows it.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def zeroed(path: Path) -> None:
    """As after a crash: the length was written, and the content was not."""
    size = path.stat().st_size
    path.write_bytes(b"")
    os.truncate(path, size)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)
    os.utime(path, (1, 1))


def longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def filled_with_noise(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def replaced_by_another(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])


def replaced_by_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def replaced_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


CONTENT_DAMAGES = [flipped, zeroed, cut, replaced_by_another]
DAMAGES = [
    *(*CONTENT_DAMAGES, longer),
    *(replaced_by_a_link, replaced_by_a_pipe, replaced_by_a_folder),
]


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_never_reaches_a_workspace(
    recorded: RecordedLake, damage: Callable[[Path], None], content: bytes
) -> None:
    recorded.fetch("first")
    path = file_of(recorded.cache, content)
    damage(path)
    data, fetched = recorded.fetch("second")
    assert contents(data) == FILES
    if (damage, content) != (longer, SMALL):  # what follows the contents of a pack is not read
        assert fetched.counts()["cache_misses"] >= 1
    if damage in CONTENT_DAMAGES or content == SMALL:
        # What was wrong is not found again, and the download has taken its place.
        recorded.fetch("third")
        assert recorded.keys == ["empty"]


@pytest.mark.parametrize("damage", [*DAMAGES, Path.unlink, filled_with_noise])
def test_a_damaged_index_leads_to_nothing_wrong(
    recorded: RecordedLake, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.fetch("first")
    damage(recorded.cache.folder / "index")
    for name in ("second", "third"):
        data, _ = recorded.fetch(name)
        assert contents(data) == FILES
    recorded.cache.clear()
    # The disk seemed to fail.
    monkeypatch.setattr(recorded.cache, "_rests_until", 1.0)
    if damage is not replaced_by_a_folder:
        recorded.fetch("fourth")
        recorded.fetch("fifth")
        assert recorded.keys == ["empty"]


def test_an_index_that_is_cut_within_a_record_fails_no_download(cache: ObjectCache) -> None:
    remote = put(cache, SMALL)
    assert take(cache, remote) == SMALL
    index = cache.folder / "index"
    begin = next(at for at, byte in enumerate(index.read_bytes()) if byte)
    # The process has it open already.
    os.truncate(index, begin + 25)
    assert take(cache, remote) is None


@pytest.mark.parametrize("number", [1, 7], ids=["small", "large"])
def test_a_writer_that_is_killed_leaves_nothing_that_is_taken(
    recorded: RecordedLake, cache: ObjectCache, number: int
) -> None:
    with start(cache, "half", number) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half\n"
        writer.kill()
    (left,) = files_of(cache)
    assert left.stat().st_size > 0
    assert take(cache, remote_of(content_of(number))) is None
    data, _ = recorded.fetch("first")
    assert contents(data) == FILES
    recorded.fetch("second")
    assert recorded.keys == ["empty"]


def test_a_large_entry_is_counted_while_it_is_written_and_seen_when_it_is_whole(
    cache: ObjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = remote_of(LARGE)
    seen: list[tuple[int, bytes | None]] = []

    def write(descriptor: int, piece: memoryview) -> int:
        seen.append((cache.space.status().size, take(cache, remote)))
        return os.write(descriptor, piece)

    monkeypatch.setattr(cache_module, "write_all", write)
    put(cache, LARGE)
    monkeypatch.undo()
    assert seen == [(-(-len(LARGE) // 4096) * 4096, None)]
    assert take(cache, remote) == LARGE


def start(cache: ObjectCache, *order: Any, limit: int = LIMIT) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, cached.__file__, json.dumps([str(cache.folder), limit, *order])],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_that_add_take_and_evict_at_once_get_the_right_contents(
    cache: ObjectCache,
) -> None:
    """The limit holds about a third of the contents, so that each process evicts all the time."""
    limit = 15_000_000
    processes = [start(cache, "use", seed, 80, limit=limit) for seed in range(3)]
    hits = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sum(map(int, hits)) > 20
    # Each process may have counted a 64th that another one, which evicted, did not see.
    assert 0 < cache.space.status().size <= limit + 3 * limit // 64
    contents = [content_of(number) for number in range(30)]
    taken = [take(cache, remote_of(content)) for content in contents]
    assert any(taken)
    assert all(one in (None, content) for one, content in zip(taken, contents, strict=True))


def test_an_entry_that_is_evicted_while_it_is_read_stays_readable(cache: ObjectCache) -> None:
    remotes = [put(cache, content) for content in (SMALL, LARGE)]
    found = [cache.find(REPOSITORY, remote) for remote in remotes]
    assert cache.clear().files == 2
    for entry, content in zip(found, (SMALL, LARGE), strict=True):
        assert entry is not None
        target = cache.folder / "copy"
        with closing(entry), target.open("w+b") as file:
            assert entry.copy_to(file.fileno())
        assert target.read_bytes() == content
    cache.end_batch()
    assert take(cache, remotes[0]) is None


def test_a_full_disk_fails_no_attempt_and_leaves_no_part_of_an_entry(
    recorded: RecordedLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[int] = []

    def full(descriptor: int, piece: memoryview, *_: int) -> int:
        written.append(os.write(descriptor, piece[:100]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache_module, "write_all", full)
    monkeypatch.setattr(cache_packs, "write_at", full)
    data, _ = recorded.fetch("first")
    assert contents(data) == FILES
    assert files_of(recorded.cache) == []
    assert caplog.text.count("No space left") == 1
    # Nothing more is tried for a while.
    tried = len(written)
    recorded.cache.add_file(REPOSITORY, data / "one")
    assert 1 <= len(written) == tried <= 3


def test_a_workspace_without_room_is_the_attempts_failure_and_keeps_file_of(
    cache: ObjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = put(cache, LARGE)

    def full(descriptor: int, piece: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache_module, "write_all", full)
    with pytest.raises(OSError, match="No space left"):
        take(cache, remote)
    monkeypatch.undo()
    assert take(cache, remote) == LARGE


def test_an_entry_is_closed_where_no_file_can_be_made_for_it(
    recorded: RecordedLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files run out, each that stays open takes one from the attempts that follow."""
    recorded.fetch("first")
    cached_file = file_of(recorded.cache, LARGE)
    create = os.open

    def refuse(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if str(path) == str(tmp_path / "second" / "large"):
            raise OSError(errno.EMFILE, "too many open files")
        return create(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="too many"):
        recorded.fetch("second")
    links = {os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()}
    assert str(cached_file) not in links


def test_what_was_not_used_for_the_longest_time_goes_first(tmp_path: Path) -> None:
    limit = 40 * 4096
    cache = opened(tmp_path / "cache", limit)
    remotes = []
    for number in range(20):
        remotes.append(put(cache, bytes([number]) * 4096))
        os.utime(file_of(cache, bytes([number]) * 4096), (number, number))
    # The oldest one is used, which makes it the newest.
    assert take(cache, remotes[0]) is not None
    for number in range(20, 45):
        put(cache, bytes([number]) * 4096)
    evicted = cache.take_counts()["cache_evictions"]
    assert evicted > 0
    assert cache.space.status().size <= limit
    kept = [take(cache, remote) is not None for remote in remotes]
    assert kept[0]
    assert not any(kept[1 : evicted + 1])
    assert all(kept[evicted + 1 :])


def test_what_is_too_large_for_the_limit_pushes_nothing_out(tmp_path: Path) -> None:
    cache = opened(tmp_path / "cache", 4_000_000)
    remote = put(cache, SMALL)
    put(cache, LARGE)
    assert len(files_of(cache)) == 1
    assert take(cache, remote) == SMALL


def test_with_little_free_space_the_cache_gives_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remotes = [put(opened(tmp_path / "cache"), content_of(n)) for n in (1, 2, 3)]
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(100, 90, 1 << 20))
    cache = opened(tmp_path / "cache", min_free=1 << 30)
    put(cache, content_of(4))
    assert files_of(cache) == []
    assert [take(cache, remote) for remote in remotes] == [None] * 3
    assert cache.take_counts()["cache_evictions"] == 3


@pytest.mark.parametrize("damage", ["", "many", "-5", "9" * 40])
def test_a_damaged_number_of_used_bytes_is_counted_anew(
    tmp_path: Path, cache: ObjectCache, damage: str
) -> None:
    put(cache, SMALL)
    (cache.folder / "usage").write_text(damage)
    again = opened(cache.folder)
    put(again, content_of(2))
    assert len(files_of(again)) == 2
    assert int((cache.folder / "usage").read_text()) < LIMIT


def test_the_default_limit_is_a_share_of_the_free_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, 50 << 30))
    assert opened(tmp_path / "cache", None).space.limit == 5 << 30
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, 50 << 40))
    assert opened(tmp_path / "cache", None).space.limit == 32 << 30


def test_a_folder_that_others_can_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o750)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(opened(tmp_path / "cache").folder)
    for name in ("open", "file", "link"):
        with pytest.raises(OSError, match=r"other users|exists|not a folder"):
            ObjectCache(tmp_path / name, LIMIT).prepare()


def test_a_cache_whose_folder_was_removed_fails_no_attempt_and_is_made_again(
    recorded: RecordedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.fetch("first")
    for path in sorted(recorded.cache.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    recorded.cache.folder.rmdir()
    data, _ = recorded.fetch("second")
    assert contents(data) == FILES
    monkeypatch.setattr(recorded.cache, "_rests_until", 1.0)
    recorded.fetch("third")
    recorded.fetch("fourth")
    assert recorded.keys == ["empty"]


def test_an_object_with_an_opaque_checksum_is_found_by_its_place(cache: ObjectCache) -> None:
    digest = remote_of(LARGE).checksum
    here = RemoteObject("key", len(LARGE), checksum="0x8DA-token", address="s3://bucket/data/1")
    cache.add_read(REPOSITORY, here, digest, memoryview(LARGE))
    assert take(cache, here) == LARGE
    elsewhere = [
        RemoteObject("key", len(LARGE), checksum="0x8DA-token", address="s3://bucket/data/2"),
        RemoteObject("key", len(LARGE), checksum="other", address=here.address),
        RemoteObject("key", len(LARGE), checksum="0x8DA-token"),
    ]
    assert [take(cache, remote) for remote in elsewhere] == [None] * 3
    assert take(cache, here, "other-repository") is None
    assert take(opened(cache.folder, server="https://other"), here) is None


def test_a_damaged_alias_leads_nowhere(cache: ObjectCache) -> None:
    here = RemoteObject("key", len(SMALL), checksum="token", address="s3://bucket/data/1")
    cache.add_read(REPOSITORY, here, remote_of(SMALL).checksum, memoryview(SMALL))
    other = bytes(reversed(SMALL))
    put(cache, other)
    (alias,) = (path for path in (cache.folder / "aliases").rglob("*") if path.is_file())
    # It names another entry, of the same size.
    alias.write_text(remote_of(other).checksum + alias.read_text()[32:])
    assert take(cache, here) is None
    assert not alias.exists()


@pytest.mark.parametrize("damage", [*DAMAGES, Path.unlink])
def test_an_alias_that_cannot_be_read_fails_no_download(
    cache: ObjectCache, damage: Callable[[Path], None]
) -> None:
    here = RemoteObject("key", len(LARGE), checksum="token", address="s3://bucket/data/1")
    cache.add_read(REPOSITORY, here, remote_of(LARGE).checksum, memoryview(LARGE))
    (alias,) = (path for path in (cache.folder / "aliases").rglob("*") if path.is_file())
    damage(alias)
    assert take(cache, here) is None


def listed(recorded: RecordedLake, monkeypatch: pytest.MonkeyPatch, checksum: str) -> None:
    """Give every object of the listing this checksum, and a recorded."""

    def listing(repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        for item in recorded.objects.list(repository, ref, prefix):
            address = f"s3://{item.key}"
            yield RemoteObject(item.key, item.size, checksum=checksum, address=address)

    monkeypatch.setattr(recorded, "list", listing, raising=False)


def test_checksums_that_only_look_like_md5s_are_found_out_by_a_second_reading(
    recorded: RecordedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(recorded, monkeypatch, "0" * 32)
    data, _ = recorded.fetch("first")
    assert contents(data) == FILES
    # Some objects were read twice.
    assert len(FILES) < len(recorded.keys) <= 2 * len(FILES)
    data, _ = recorded.fetch("second")
    assert contents(data) == FILES
    assert set(recorded.keys) == {"empty"}


def test_content_that_does_not_arrive_as_it_is_stored_fails_the_download(
    recorded: RecordedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    def read(
        repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        nonlocal reads
        reads += 1
        for piece in recorded.objects.read(repository, ref, key, size, start):
            wrong = bytearray(piece)
            if len(wrong) > 0:
                wrong[0] ^= reads
            yield memoryview(wrong)

    monkeypatch.setattr(recorded, "read", read)
    with pytest.raises(BackendUnavailableError, match="did not arrive as it is stored"):
        recorded.fetch("first")
    assert files_of(recorded.cache) == []


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 21, 35])
def test_a_digest_is_that_of_s3_in_parts_however_the_content_is_cut(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "PIECE", 10)
    content = bytes(range(size))
    parts = [md5(content[at : at + 10]).digest() for at in range(0, size, 10)]
    expected = (md5(b"".join(parts)) if size > 10 else md5(content)).hexdigest()
    with ThreadPoolExecutor(2) as pool:
        for step, hashed_in in product((1, 3, 10, 50), (None, pool)):
            digest = Digest(size, hashed_in)
            for at in range(0, size, step):
                digest.update(memoryview(content[at : at + step]))
            assert digest.text() == expected


def test_an_object_in_pieces_is_written_hashed_and_kept(
    recorded: RecordedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content is in no single piece, so it is kept from the file."""

    def in_pieces(
        repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        recorded.keys.append(key.removeprefix("data/"))
        (content,) = recorded.objects.read(repository, ref, key, size, start)
        yield from (content[at : at + 1000] for at in range(0, size, 1000))

    for module in (inventory, downloading):
        monkeypatch.setattr(module, "PIECE", 1000)
    monkeypatch.setattr(recorded, "read", in_pieces)
    data, fetched = recorded.fetch("first")
    assert contents(data) == FILES
    assert not fetched.changes(0)
    data, _ = recorded.fetch("second")
    assert contents(data) == FILES
    assert recorded.keys == ["empty"]
