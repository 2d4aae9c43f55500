"""The sync plan, as properties over generated trees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.errors import ProjectionError
from perago.transfer.inventory import Projection, RemoteObject, project
from perago.transfer.plan import SyncPlan, build_sync_plan
from perago.transfer.scan import LocalTree
from support.trees import plain_paths, record, remote, tree_of

CONTENT = st.sampled_from("123")
PREFIXES = st.sampled_from(["", "a", "a/b"])
OUTSIDE = {"a-archive/x": "1", "ab": "1", "_lakefs_actions/hook.yaml": "1", "z": "1"}


@st.composite
def local_trees(draw: st.DrawFn) -> tuple[dict[str, str], LocalTree]:
    """Contents by path, and the tree a scan would give: no file is where a folder is."""
    contents: dict[str, str] = {}
    for path, content in draw(st.dictionaries(plain_paths, CONTENT, max_size=8)).items():
        nested = (
            other.startswith(path + "/") or path.startswith(other + "/") for other in contents
        )
        if not any(nested):
            contents[path] = content
    taken = tree_of({path: record() for path in contents})
    empty = {
        folder
        for folder in draw(st.sets(plain_paths, max_size=3))
        if not any(folder == path or folder.startswith(path + "/") for path in contents)
    }
    return contents, tree_of(taken.files, {*taken.folders, *empty})


@st.composite
def repositories(draw: st.DrawFn, prefix: str) -> dict[str, str]:
    """Keys and contents below the prefix, markers included, and objects outside of it."""
    start = f"{prefix}/" if prefix else ""
    files = draw(st.dictionaries(plain_paths, CONTENT, max_size=8))
    markers = draw(st.sets(plain_paths, max_size=4))
    inside = {start + path: content for path, content in files.items()}
    inside.update({f"{start}{path}/": "" for path in markers})
    outside = {key: value for key, value in OUTSIDE.items() if not key.startswith(start or "_")}
    return outside | inside | {start + ".perago-attempt.json": "1"}


def plan_for(
    repository: dict[str, str], prefix: str, contents: dict[str, str], tree: LocalTree
) -> tuple[Projection, SyncPlan]:
    projection = project([remote(key, len(value)) for key, value in repository.items()], prefix)
    start = f"{prefix}/" if prefix else ""
    plan = build_sync_plan(
        projection=projection,
        tree=tree,
        prefix=prefix,
        is_changed=lambda path: repository[start + path] != contents[path],
    )
    return projection, plan


def applied(repository: dict[str, str], plan: SyncPlan, contents: dict[str, str]) -> dict[str, str]:
    left = {key: value for key, value in repository.items() if key not in plan.deletes}
    return left | {upload.key: contents[upload.path] for upload in plan.uploads}


@given(st.data(), PREFIXES, local_trees())
def test_applying_the_plan_makes_the_projection_equal_to_the_folder(
    data: st.DataObject, prefix: str, local: tuple[dict[str, str], LocalTree]
) -> None:
    contents, tree = local
    repository = data.draw(repositories(prefix))
    _, plan = plan_for(repository, prefix, contents, tree)
    after = applied(repository, plan, contents)
    again = project([remote(key, len(value)) for key, value in after.items()], prefix)
    start = f"{prefix}/" if prefix else ""
    assert {path: after[start + path] for path in again.files} == contents


@given(st.data(), PREFIXES, local_trees())
def test_a_plan_is_empty_the_second_time(
    data: st.DataObject, prefix: str, local: tuple[dict[str, str], LocalTree]
) -> None:
    contents, tree = local
    repository = data.draw(repositories(prefix))
    _, plan = plan_for(repository, prefix, contents, tree)
    _, second = plan_for(applied(repository, plan, contents), prefix, contents, tree)
    assert not second
    assert second.unchanged == len(contents)


@given(st.data(), PREFIXES, local_trees())
def test_nothing_outside_the_prefix_is_ever_in_a_plan(
    data: st.DataObject, prefix: str, local: tuple[dict[str, str], LocalTree]
) -> None:
    contents, tree = local
    repository = data.draw(repositories(prefix))
    _, plan = plan_for(repository, prefix, contents, tree)
    start = f"{prefix}/" if prefix else ""
    for key in (*plan.deletes, *(upload.key for upload in plan.uploads)):
        assert key.startswith(start)
        assert not key.startswith("_lakefs_actions/")
        assert key != start + ".perago-attempt.json"


@given(st.data(), PREFIXES, local_trees())
def test_unchanged_objects_are_never_touched(
    data: st.DataObject, prefix: str, local: tuple[dict[str, str], LocalTree]
) -> None:
    contents, tree = local
    repository = data.draw(repositories(prefix))
    _, plan = plan_for(repository, prefix, contents, tree)
    start = f"{prefix}/" if prefix else ""
    same = {
        start + path
        for path, content in contents.items()
        if repository.get(start + path) == content
    }
    touched = {*plan.deletes, *(upload.key for upload in plan.uploads)}
    assert not same & touched
    assert plan.unchanged == len(same)


@given(st.data(), PREFIXES, local_trees())
def test_a_marker_survives_exactly_while_its_folder_is_there(
    data: st.DataObject, prefix: str, local: tuple[dict[str, str], LocalTree]
) -> None:
    contents, tree = local
    repository = data.draw(repositories(prefix))
    projection, plan = plan_for(repository, prefix, contents, tree)
    for path, marker in projection.markers.items():
        assert (marker.key not in plan.deletes) == (path in tree.folders)


@given(st.data(), PREFIXES, local_trees())
def test_a_changed_object_keeps_its_content_type_and_metadata(
    data: st.DataObject, prefix: str, local: tuple[dict[str, str], LocalTree]
) -> None:
    contents, tree = local
    repository = data.draw(repositories(prefix))
    projection, plan = plan_for(repository, prefix, contents, tree)
    for upload in plan.uploads:
        before = projection.files.get(upload.path, RemoteObject("new", 0))
        assert (upload.content_type, upload.metadata) == (before.content_type, before.metadata)


@pytest.mark.parametrize("prefix", ["", "_lakefs_actions"])
def test_a_body_that_creates_action_files_fails_the_attempt(prefix: str) -> None:
    start = "" if prefix else "_lakefs_actions/"
    tree = tree_of({f"{start}a.yaml": record(), f"{start}b.yaml": record()})
    with pytest.raises(ProjectionError) as caught:
        build_sync_plan(
            projection=Projection({}, {}), tree=tree, prefix=prefix, is_changed=lambda _: True
        )
    assert "a.yaml" in str(caught.value)
    assert "b.yaml" in str(caught.value)


def test_a_body_that_creates_an_empty_actions_folder_fails_the_attempt() -> None:
    with pytest.raises(ProjectionError, match="must not write LakeFS actions"):
        build_sync_plan(
            projection=Projection({}, {}),
            tree=tree_of({}, {"_lakefs_actions"}),
            prefix="",
            is_changed=lambda _: True,
        )


def test_an_actions_folder_below_a_prefix_is_an_ordinary_folder() -> None:
    plan = build_sync_plan(
        projection=Projection({}, {}),
        tree=tree_of({"_lakefs_actions/a": record()}),
        prefix="audio",
        is_changed=lambda _: True,
    )
    assert [upload.key for upload in plan.uploads] == ["audio/_lakefs_actions/a"]


def test_a_file_name_that_is_not_utf_8_is_refused_by_name() -> None:
    with pytest.raises(ProjectionError, match="not valid UTF-8"):
        build_sync_plan(
            projection=Projection({}, {}),
            tree=tree_of({"caf\udce9": record()}),
            prefix="",
            is_changed=lambda _: True,
        )
