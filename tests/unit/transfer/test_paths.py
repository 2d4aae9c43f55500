"""The path policy: what is accepted can be created, and what cannot be is named."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.errors import ProjectionError
from perago.text import quote_path
from perago.transfer.inventory import Projection, project, projected
from perago.transfer.paths import (
    FileSystem,
    SortedNames,
    check_projection,
    check_publishable,
    refuse_keys,
    room_in,
)
from support.trees import keys, remote

EXACT = FileSystem()
HERE = Path("/workspaces/attempt/data")


def projection_of(*listed: str) -> Projection:
    return project([remote(key, 0 if key.endswith("/") else 1) for key in listed], "")


def bad_keys(projection: Projection, system: FileSystem = EXACT, folder: Path = HERE) -> set[str]:
    """The keys that the one error names."""
    try:
        check_projection(projection, folder, system)
    except ProjectionError as error:
        text = str(error)
        everything = [*projection.files.values(), *projection.markers.values()]
        named = {item.key for item in everything if f"\n  {quote_path(item.key)}: " in text}
        assert text.startswith(f"{len(named)} object keys cannot be files here:")
        return named
    return set()


@given(st.sets(keys | keys.map(lambda key: key + "/"), max_size=12))
def test_keys_that_are_accepted_can_all_be_created_and_stay_inside_the_folder(
    listed: set[str],
) -> None:
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer) / "data"
        folder.mkdir()
        system = FileSystem.probe(folder)
        projection = projection_of(*listed)
        bad = bad_keys(projection, system, folder)
        files = {p: o for p, o in projection.files.items() if o.key not in bad}
        markers = {p: o for p, o in projection.markers.items() if o.key not in bad}
        check_projection(Projection(files, markers), folder, system)
        for path in markers:
            (folder / path).mkdir(parents=True, exist_ok=True)
        for path in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).open("xb").close()
        found = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
        assert found == set(files)
        assert [p.name for p in Path(outer).iterdir()] == ["data"]


@given(st.sets(keys | keys.map(lambda key: key + "/"), max_size=12))
def test_a_key_is_refused_only_for_a_reason(listed: set[str]) -> None:
    """A key that is fine alone is refused only when it clashes with another one."""
    for key in bad_keys(projection_of(*listed)):
        if not bad_keys(projection_of(key)):
            parents = {key.rstrip("/")[:i] for i, char in enumerate(key) if char == "/"}
            assert parents & listed


@pytest.mark.parametrize(
    "key",
    [
        *["..", "../x", "a/../b", ".", "./a", "a/./b", "a//b", "/a", "/", "a//", "nul\0"],
        *["\ud800", "x" * 256, "a/" + "é" * 128, "x" * 256 + "/", "/".join(["d" * 200] * 21)],
    ],
)
def test_a_key_that_no_file_can_have_is_refused(key: str) -> None:
    assert bad_keys(projection_of(key, "good")) == {key}


@pytest.mark.parametrize(
    "key",
    [
        *["a b", "#?%+&;", "'\"", "[x]*", "a\\b", "日本", "new\nline", "\t", ".hidden", "-rf", "~"],
        *["...", "a..b", "..a", "x" * 255, "é" * 127, "_lakefs_actions", "con", " "],
    ],
)
def test_a_key_that_is_only_unusual_is_accepted(key: str) -> None:
    assert bad_keys(projection_of(key, f"folder/{key}/x", "good")) == set()


def test_an_object_with_content_whose_key_ends_in_a_slash_is_refused() -> None:
    assert bad_keys(project([remote("dir/", 5)], "")) == {"dir/"}


def test_keys_beside_their_own_children_fail_with_one_error_that_lists_every_bad_key() -> None:
    """``dir/``, ``a//b`` and ``a`` beside ``a/b`` are each told for what they are."""
    listed = ["a", "a/b", "a/c/d", "dir/", "dir/x", "e//f", "../g", "h", "h/", "fine"]
    assert bad_keys(projection_of(*listed)) == {"a/b", "a/c/d", "e//f", "../g", "h/"}


@given(st.sets(keys | keys.map(lambda key: key + "/"), max_size=12))
def test_the_check_of_a_sorted_stream_finds_what_the_check_of_the_whole_finds(
    listed: set[str],
) -> None:
    """LakeFS lists in the order of the bytes; a lone surrogate has none and is never listed."""
    objects = [remote(key, 0 if key.endswith("/") else 1) for key in sorted(listed)]
    names = SortedNames(room_in(HERE))
    entries = list(projected(objects, ""))
    found = [(e.item.key, why) for e in entries if (why := names.problem(e))]
    assert told(lambda: refuse_keys(found)) == told(
        lambda: check_projection(project(objects, ""), HERE, EXACT)
    )


def told(check: Callable[[], None]) -> str | None:
    try:
        check()
    except ProjectionError as error:
        return str(error)
    return None


def test_every_key_of_a_folder_below_a_file_is_listed_not_only_the_first() -> None:
    listed = ["a", "a/c/d", "a/c/e", "a/c/"]
    assert bad_keys(projection_of(*listed)) == {"a/c/d", "a/c/e", "a/c/"}


def test_an_error_with_many_bad_keys_counts_all_and_lists_the_first() -> None:
    listed = [f"bad//{number:06}" for number in range(100_000)]
    text = told(lambda: check_projection(projection_of(*listed), HERE, EXACT)) or ""
    first, *named, last = text.splitlines()
    assert first == "100000 object keys cannot be files here:"
    assert named == [f"  'bad//{number:06}': an empty path segment" for number in range(20)]
    assert last == "  … and 99980 more"


def test_an_error_about_very_long_and_badly_encoded_keys_is_short_and_valid_utf_8() -> None:
    listed = [f"\udcff{number}//" + "d/" * 5000 for number in range(50)]
    text = told(lambda: check_projection(projection_of(*listed), HERE, EXACT)) or ""
    assert len(text.encode()) < 10_000
    assert "'\\udcff0//d/" in text


def test_an_error_about_local_paths_is_bounded_too() -> None:
    files = [f"caf\udce9{number:03}" for number in range(500)]
    text = told(lambda: check_publishable(files, (), "prefix")) or ""
    assert text.startswith("500 local paths cannot be published:\n  'caf\\udce9000': ")
    assert len(text.encode().splitlines()) == 22


CASE = FileSystem(folds_case=True)
UNICODE = FileSystem(folds_unicode=True)


def test_a_file_system_that_folds_case_refuses_names_that_differ_in_case() -> None:
    projection = projection_of("Readme", "README", "other")
    assert bad_keys(projection, CASE) == {"README"}
    assert bad_keys(projection, EXACT) == set()


def test_a_file_system_that_folds_case_refuses_folders_that_would_become_one() -> None:
    """Otherwise ``dir/y`` would come back as ``Dir/y``: a delete and an upload of nobody's."""
    assert bad_keys(projection_of("Dir/x", "dir/y"), CASE) == {"dir/y"}
    assert bad_keys(projection_of("Dir/", "dir/sub/"), CASE) == {"dir/sub/"}
    assert bad_keys(projection_of("dir/x", "dir/y", "dir/sub/z"), CASE) == set()


def test_a_file_system_that_folds_case_refuses_a_file_where_a_folder_must_be() -> None:
    assert bad_keys(projection_of("A", "a/b"), CASE) == {"a/b"}


def test_a_file_system_that_folds_unicode_refuses_two_spellings_of_a_letter() -> None:
    projection = projection_of("caf\u00e9", "cafe\u0301")
    assert len(bad_keys(projection, UNICODE)) == 1
    assert bad_keys(projection, EXACT) == set()


def test_the_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    FileSystem.probe(tmp_path)
    assert list(tmp_path.iterdir()) == []
