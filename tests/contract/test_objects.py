"""Objects: listings and their boundaries, reads, writes, deletes."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import pytest

from perago.errors import BackendRefusedError, NotFoundError
from perago.lakefs.objects import LakeFSObjects
from perago.names import listing_prefix
from perago.transfer.inventory import PIECE, Digest, RemoteObject, SmallWrite, project
from support.lakes import LakeUnderTest
from support.saved_objects import save_object

MISSING = "0" * 64
EMPTY = "d41d8cd98f00b204e9800998ecf8427e"
UNUSUAL = [
    "with space",
    "a+b%20c#d?e&f",
    "ümlaut/日本",
    "tab\tinside",
    "quote'\"[x]{y}|^~",
    "a:b;c\\d",
]


def digest_of(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()  # noqa: S324  not for security


def test_a_listing_has_size_content_type_metadata_and_md5(lake: LakeUnderTest) -> None:
    lake.put("main", "plain", b"12345")
    lake.put("main", "typed", b"x", content_type="text/csv")
    lake.put("main", "with", b"", content_type="text/plain", metadata={"key": "value", "b": "2"})
    assert list(lake.objects.list(lake.repository, "main", "")) == [
        RemoteObject("plain", 5, checksum="827ccb0eea8a706c4c34a16891f84e7b"),
        RemoteObject("typed", 1, "text/csv", checksum="9dd4e461268c8034f5c8564e155c67a6"),
        RemoteObject("with", 0, "text/plain", {"key": "value", "b": "2"}, EMPTY),
    ]


def test_a_listing_has_the_md5_of_a_small_object(lake: LakeUnderTest) -> None:
    lake.put("main", "plain", b"12345")
    (listed,) = lake.objects.list(lake.repository, "main", "")
    assert listed.checksum == digest_of(b"12345")


@pytest.mark.parametrize("size", [1, 1 << 20, PIECE, PIECE + 1, 2 * PIECE + 7])
def test_an_object_of_any_size_comes_back_with_its_digest_and_all_that_it_has(
    lake: LakeUnderTest, size: int
) -> None:
    content = os.urandom(size)
    digest = Digest(size)
    digest.update(memoryview(content))
    lake.put("main", "key", b"before")
    lake.put("main", "key", content, content_type="text/csv", metadata={"Mixed-Case": "Größe"})
    (listed,) = lake.objects.list(lake.repository, "main", "")
    assert listed == RemoteObject("key", size, "text/csv", {"Mixed-Case": "Größe"}, digest.text())
    assert lake.read("main", "key") == content
    assert lake.read(lake.commit("main").commit, "key") == content


def test_objects_of_a_commit_are_read_in_any_order(lake: LakeUnderTest) -> None:
    keys = [f"k{number:02}" for number in range(40)] + ["ü", "with space", "日本"]
    for key in keys:
        lake.put("main", key, key.encode())
    ref = lake.commit("main").commit
    for order in (keys, keys[::-1], keys[::7]):
        found = [
            b"".join(lake.objects.read(lake.repository, ref, k, len(k.encode()))) for k in order
        ]
        assert found == [key.encode() for key in order]


def test_many_small_objects_are_written_and_read_at_once(lake: LakeUnderTest) -> None:
    """As transfers do it: what is left out moves in the other way, and nothing else differs."""
    keys = [f"k{number:03}" for number in range(60)] + [*UNUSUAL, "deep/er/key", "markers/"]
    contents = {key: b"body of " + key.encode() * 300 for key in keys}
    writes = [SmallWrite(key, contents[key], "text/csv") for key in keys]
    written = dict(lake.objects.write_many(lake.repository, "main", iter(writes), 8))
    for write in writes:
        assert written.get(write, digest_of(write.content)) == digest_of(write.content)
        if write not in written:
            lake.put("main", write.key, write.content, content_type="text/csv")
    ref = lake.commit("main").commit
    listed = list(lake.objects.list(lake.repository, ref, ""))
    assert {item.key: item.checksum for item in listed} == {
        key: digest_of(contents[key]) for key in keys
    }
    assert {item.content_type for item in listed} == {"text/csv"}
    found = {
        item.key: bytes(content)
        for item, content in lake.objects.read_many(lake.repository, ref, iter(listed), 8)
    }
    left = {key: lake.read(ref, key) for key in keys if key not in found}
    assert found | left == contents
    if isinstance(lake.objects, LakeFSObjects):
        assert (len(written), left) == (len(keys), {})


@pytest.mark.parametrize("key", ["key", "日本/control\n"])
def test_a_large_object_goes_into_a_file(lake: LakeUnderTest, key: str, tmp_path: Path) -> None:
    """As downloads do it: what the fast way leaves out is read from there on."""
    content = os.urandom(2 * PIECE + 12_345)
    ref = lake.put_and_commit("main", key, content)
    at = lake.repository, ref, key, len(content)
    lengths = save_object(lake.objects, *at, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == content
    if isinstance(lake.objects, LakeFSObjects):
        assert lengths == [PIECE, PIECE, 12_345]


def test_a_large_object_is_read_from_any_piece_on(lake: LakeUnderTest) -> None:
    content = os.urandom(2 * PIECE)
    ref = lake.put_and_commit("main", "key", content)
    for start in (0, PIECE, 2 * PIECE):
        found = lake.objects.read(lake.repository, ref, "key", len(content), start)
        assert b"".join(found) == content[start:]


def test_what_is_not_there_or_cannot_be_written_is_in_no_file(
    lake: LakeUnderTest, tmp_path: Path
) -> None:
    ref, size = lake.put_and_commit("main", "key", bytes(PIECE + 1)), PIECE + 1
    with (tmp_path / "file").open("w+b", buffering=0) as file, suppress(NotFoundError):
        missing = lake.objects.save(lake.repository, ref, "no-such-key", size, file.fileno())
        assert list(missing) == []
    with (tmp_path / "file").open("rb") as unwritable:
        saved = lake.objects.save(lake.repository, ref, "key", size, unwritable.fileno())
        assert list(saved) == []
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"],
)
def test_a_content_type_is_kept_or_the_object_left_out(
    lake: LakeUnderTest, content_type: str
) -> None:
    write = SmallWrite("key", b"--x--", content_type)
    if list(lake.objects.write_many(lake.repository, "main", [write], 8)):
        (listed,) = lake.objects.list(lake.repository, "main", "")
        assert (listed.content_type, listed.size) == (content_type, 5)


def test_what_cannot_be_moved_at_once_is_left_out(lake: LakeUnderTest) -> None:
    ref = lake.put_and_commit("main", "key", b"12345")
    missing = [RemoteObject("key", 4), RemoteObject("no-such-key", 5)]
    assert list(lake.objects.read_many(lake.repository, ref, missing, 8)) == []
    assert list(lake.objects.read_many(lake.repository, MISSING, missing, 8)) == []
    write = SmallWrite("key", b"x", "text/csv")
    assert list(lake.objects.write_many(lake.repository, "no-such-branch", [write], 8)) == []


def test_a_prefix_is_no_path_boundary_to_a_listing_but_to_a_projection(
    lake: LakeUnderTest,
) -> None:
    for key in ("audio", "audio-archive/a", "audio/a", "audio/b/c", "other"):
        lake.put("main", key)
    ref = lake.commit("main").commit
    assert lake.keys(ref, "audio") == ["audio", "audio-archive/a", "audio/a", "audio/b/c"]
    assert lake.keys(ref, listing_prefix("audio")) == ["audio/a", "audio/b/c"]
    listing = lake.objects.list(lake.repository, ref, listing_prefix("audio"))
    assert list(project(listing, "audio").files) == ["a", "b/c"]


def test_keys_come_in_byte_order(lake: LakeUnderTest) -> None:
    keys = ["B", "a", "a b", "a-b", "a.b", "a/b", "a0", "z", "ü"]
    for key in reversed(keys):
        lake.put("main", key)
    assert lake.keys("main") == sorted(keys, key=str.encode)


def level(lake: LakeUnderTest, prefix: str) -> list[str]:
    found = lake.objects.level(lake.repository, "main", prefix)
    return [item if isinstance(item, str) else f"object {item.key}" for item in found]


@pytest.mark.parametrize("page", [1000, 2])
def test_a_level_has_objects_and_in_key_order_the_prefixes_of_what_is_deeper(
    lake: LakeUnderTest, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr("perago.lakefs.api.ENTRIES_PER_PAGE", page)
    keys = ["/", "a", "a-b", "a.c/x", "a/b/1", "a/b/2", "a/c", "a//", "b/", "b/1", "p/q/r/s", "z"]
    for key in keys:
        lake.put("main", key, b"")
    assert level(lake, "") == [
        *["/", "object a", "object a-b", "a.c/", "a/", "b/", "p/", "object z"],
    ]
    # The marker of a folder is in it. A prefix that is in the middle of a name is taken as it is.
    assert level(lake, "a/") == ["a//", "a/b/", "object a/c"]
    assert level(lake, "b/") == ["object b/", "object b/1"]
    assert level(lake, "p/") == ["p/q/"]
    assert level(lake, "a") == ["object a", "object a-b", "a.c/", "a/"]
    assert level(lake, "no/such/") == []
    # Every page of a listing, too.
    assert lake.keys("main") == sorted(keys, key=str.encode)


def test_the_objects_of_a_level_are_those_of_a_listing(lake: LakeUnderTest) -> None:
    lake.put("main", "p/plain", b"12345", content_type="text/csv", metadata={"key": "value"})
    lake.put("main", "p/deeper/x", b"1")
    found = [*lake.objects.level(lake.repository, "main", "p/")]
    assert found == ["p/deeper/", *lake.objects.list(lake.repository, "main", "p/plain")]


def test_a_level_of_what_is_not_there_is_not_found(lake: LakeUnderTest) -> None:
    with pytest.raises(NotFoundError):
        list(lake.objects.level(lake.repository, MISSING, ""))


def test_directory_markers_are_objects_whose_key_ends_in_a_slash(lake: LakeUnderTest) -> None:
    lake.put("main", "dir/", b"", metadata={"kind": "marker"})
    lake.put("main", "dir/file", b"1")
    assert lake.keys("main") == ["dir/", "dir/file"]
    projection = project(lake.objects.list(lake.repository, "main", ""), "")
    assert list(projection.markers) == ["dir"]
    assert list(projection.files) == ["dir/file"]


def test_a_branch_shows_uncommitted_changes_and_a_commit_never_changes(
    lake: LakeUnderTest,
) -> None:
    ref = lake.put_and_commit("main", "a", b"1")
    lake.put("main", "a", b"2")
    lake.put("main", "b", b"3")
    assert lake.read("main", "a") == b"2"
    assert lake.keys("main") == ["a", "b"]
    assert lake.read(ref, "a") == b"1"
    assert lake.keys(ref) == ["a"]


def test_a_listing_of_what_is_not_there_is_not_found(lake: LakeUnderTest) -> None:
    for ref in ("no-such-branch", MISSING):
        with pytest.raises(NotFoundError):
            lake.keys(ref)
    assert lake.keys("main", "no/such/prefix") == []


def test_reading_what_is_not_there_is_not_found(lake: LakeUnderTest) -> None:
    ref = lake.put_and_commit("main", "a")
    for where, key in ((ref, "b"), (MISSING, "a")):
        with pytest.raises(NotFoundError):
            lake.read(where, key)


def test_writing_to_a_missing_branch_is_not_found(lake: LakeUnderTest) -> None:
    with pytest.raises(NotFoundError):
        lake.put("no-such-branch", "a")
    with pytest.raises(NotFoundError):
        lake.put("no-such-branch", "a", metadata={"k": "v"})
    with pytest.raises(NotFoundError):
        lake.put("no-such-branch", "a", bytes(PIECE + 1))


@pytest.mark.parametrize("key", UNUSUAL)
def test_unusual_keys_are_kept_as_they_are(lake: LakeUnderTest, key: str) -> None:
    lake.put("main", key, b"body of " + key.encode())
    assert lake.keys("main") == [key]
    ref = lake.commit("main").commit
    assert lake.read(ref, key) == b"body of " + key.encode()
    lake.objects.delete(lake.repository, "main", [key])
    assert lake.keys("main") == []


def test_deleting_a_missing_key_is_fine(lake: LakeUnderTest) -> None:
    lake.put_and_commit("main", "a")
    lake.objects.delete(lake.repository, "main", ["never-there", "a"])
    assert lake.keys("main") == []
    lake.objects.delete(lake.repository, "main", ["a"])
    lake.objects.delete(lake.repository, "no-such-branch", ["a"])


def test_more_than_a_thousand_keys_are_not_deleted_in_one_call(lake: LakeUnderTest) -> None:
    lake.objects.delete(lake.repository, "main", [f"k{n}" for n in range(1000)])
    with pytest.raises(BackendRefusedError):
        lake.objects.delete(lake.repository, "main", [f"k{n}" for n in range(1001)])
