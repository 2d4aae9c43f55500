"""``perago workspace`` on a real LakeFS."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lakefs_sdk
import pytest
from lakefs_sdk.client import LakeFSClient

from support.command_line import Ended, RunPerago

pytestmark = pytest.mark.servers


@pytest.fixture
def new_repository(lakefs: LakeFSClient) -> Iterator[str]:
    """A name that no repository has yet; one that was made under it is deleted."""
    name = f"put-{uuid.uuid4().hex}"
    yield name
    lakefs.repositories_api.delete_repository(name, force=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "sales").mkdir(parents=True)
    (made / "sales" / "orders.csv").write_text("id\n1\n")
    (made / "notes.txt").write_text("x")
    return made


def json_of(done: Ended) -> Any:
    assert done.code == 0, done.err
    return json.loads(done.out)


def commits(lakefs: LakeFSClient, repository: str, ref: str) -> list[tuple[str, str]]:
    log = lakefs.refs_api.log_commits(repository, ref).results
    return [(commit.id, commit.message) for commit in log]


def test_data_gets_in_and_out_and_only_a_difference_is_a_commit(
    perago: RunPerago, lakefs: LakeFSClient, new_repository: str, folder: Path, tmp_path: Path
) -> None:
    name = new_repository
    refused = perago("workspace", "put", "data", name, "-m", "first orders")
    assert refused.code == 3
    assert f"LakeFS has no repository '{name}'" in refused.err
    assert "--create" in refused.err

    put = perago("workspace", "put", "data", name, "-m", "first orders", "--create")
    assert put.code == 0, put.err
    assert f"created repository '{name}'" in put.err
    head, message = commits(lakefs, name, "main")[0]
    assert message == "first orders"
    counted = "2 added, 0 changed, 0 removed, 0 unchanged; 6 bytes moved"
    assert put.out == f"{name}@main: commit {head}: {counted}\n"
    assert lakefs.branches_api.list_branches(name).pagination.results == 1

    # In two parts, so that LakeFS knows no MD5 of it.
    (folder / "large").write_bytes(b"0123456789abcdef" * (600 << 10))
    second = json_of(perago("workspace", "put", "data", name, "-m", "large", "--json"))
    assert (second["changed"], second["files"]["added"]) == (True, 1)
    again = json_of(perago("workspace", "put", "data", name, "-m", "again", "--delete", "--json"))
    assert (again["changed"], again["commit"]) == (False, second["commit"])
    assert len(commits(lakefs, name, "main")) == 3  # with the empty one that LakeFS makes

    listed = perago("workspace", "ls", name)
    assert listed.out.split() == ["9830400", "large", "1", "notes.txt", "sales/"]
    deep = json_of(perago("workspace", "ls", f"{name}@{head}", "-r", "--json"))
    assert deep["files"] == [
        {"path": "notes.txt", "size": 1},
        {"path": "sales/orders.csv", "size": 5},
    ]

    got = perago("workspace", "get", f"{name}@main/sales", "out")
    assert got.code == 0, got.err
    assert (tmp_path / "out" / "orders.csv").read_text() == "id\n1\n"

    (folder / "notes.txt").write_text("y")
    (folder / "large").unlink()
    (folder / "new").write_text("z")
    differs = perago("workspace", "diff", "data", name)
    assert (differs.code, differs.out) == (1, "- large\n+ new\n~ notes.txt\n")
    perago("workspace", "put", "data", name, "-m", "rest", "--delete")
    assert perago("workspace", "diff", "data", name).code == 0


def test_a_branch_is_created_on_request_and_a_protected_one_takes_a_put(
    perago: RunPerago, lakefs: LakeFSClient, repository: str, folder: Path
) -> None:
    # LakeFS keeps the rules it has once read for some seconds: set before anything is written.
    lakefs.repositories_api.set_branch_protection_rules(
        repository, [lakefs_sdk.BranchProtectionRule(pattern="trunk")]
    )
    assert perago("workspace", "put", "data", repository, "-m", "protected").code == 0
    refused = perago("workspace", "put", "data", f"{repository}@test/in", "-m", "x")
    assert refused.code == 3
    assert "has no branch, tag or commit 'test'; its branches: trunk" in refused.err
    made = perago("workspace", "put", "data", f"{repository}@test/in", "-m", "x", "--create")
    assert made.code == 0, made.err
    assert "created branch 'test' from 'trunk'" in made.err
    assert perago("workspace", "ls", f"{repository}@test/in").out.split() == [
        *["1", "notes.txt"],
        "sales/",
    ]
    assert "in/" not in perago("workspace", "ls", repository).out


def test_only_a_branch_can_be_put_to(
    perago: RunPerago, lakefs: LakeFSClient, repository: str, folder: Path
) -> None:
    creation = lakefs_sdk.TagCreation(id="v1", ref="trunk")
    lakefs.tags_api.create_tag(repository, creation)
    refused = perago("workspace", "put", "data", f"{repository}@v1", "-m", "x")
    assert refused.code == 2
    assert "'v1' of" in refused.err
    assert "is no branch" in refused.err
    assert perago("workspace", "ls", f"{repository}@v1").code == 0
