from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import lakefs_sdk
import pytest
from lakefs_sdk.client import LakeFSClient

from perago.errors import BackendUnavailableError, NotFoundError, PreconditionError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT, ACTION_TEXTS
from perago.operations.fence import FenceAdmin
from perago.protocol.workspace import StagedWorkspace, StagingBranch
from support.command_line import Ended, run_perago

pytestmark = pytest.mark.servers

Fence = Callable[..., Ended]


@pytest.fixture
def fence(tmp_path: Path, settings: dict[str, str], repository: str) -> Fence:
    def run(command: str, *options: str) -> Ended:
        return run_perago("fence", command, repository, *options, folder=tmp_path, extra=settings)

    return run


@pytest.fixture
def write(lakefs: LakeFSClient, repository: str) -> Callable[[str, str], str]:
    """Commit one object to the trunk."""

    def write(path: str, text: str) -> str:
        lakefs.objects_api.upload_object(repository, "trunk", path, content=text.encode())
        creation = lakefs_sdk.CommitCreation(message=f"write {path}")
        return str(lakefs.commits_api.commit(repository, "trunk", creation).id)

    return write


def branches(lakefs: LakeFSClient, repository: str) -> list[str]:
    return [item.id for item in lakefs.branches_api.list_branches(repository).results]


def paths(lakefs: LakeFSClient, repository: str) -> list[str]:
    return [item.path for item in lakefs.objects_api.list_objects(repository, "trunk").results]


def head(lake: LakeFSControl, repository: str) -> str:
    return lake.get_head(repository, "trunk").id


def test_install_adds_one_file_by_one_commit_and_only_once(
    fence: Fence,
    lakefs: LakeFSClient,
    lake: LakeFSControl,
    repository: str,
    write: Callable[[str, str], str],
) -> None:
    before = write("data/a.txt", "a")
    assert not lake.has_fence(repository, before)
    ended = fence("install")
    now = head(lake, repository)
    assert ended.code == 0, ended.err
    assert ended.out == f"'trunk' of '{repository}': installed by commit {now}\n"
    assert lake.get_commit(repository, now).first_parent == before
    assert paths(lakefs, repository) == [ACTION_PATH, "data/a.txt"]
    assert lake.has_fence(repository, now)
    assert fence("install").out == f"'trunk' of '{repository}': already installed\n"
    assert head(lake, repository) == now
    assert branches(lakefs, repository) == ["trunk"]


def test_status_is_0_only_with_the_fence_at_head(fence: Fence) -> None:
    missing = fence("status")
    assert missing.code == 1
    assert "there is no fence" in missing.out
    fence("install")
    ended = fence("status", "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["state"] == "installed"


def test_an_edited_fence_counts_as_none_and_is_replaced(
    fence: Fence, lake: LakeFSControl, repository: str, write: Callable[[str, str], str]
) -> None:
    edited = write(ACTION_PATH, ACTION_TEXT.replace("error(", "print("))
    assert not lake.has_fence(repository, edited)
    assert fence("status").code == 1
    assert ": updated by commit " in fence("install").out
    assert lake.has_fence(repository, head(lake, repository))
    assert fence("verify").code == 0


def test_an_earlier_version_of_the_fence_holds_and_is_updated(
    fence: Fence, lake: LakeFSControl, repository: str, write: Callable[[str, str], str]
) -> None:
    earlier = write(ACTION_PATH, ACTION_TEXTS[1])
    assert lake.has_fence(repository, earlier)
    assert fence("verify").code == 0
    status = fence("status")
    assert (status.code, "earlier version" in status.out) == (0, True)
    assert ": updated by commit " in fence("install").out
    assert fence("status", "--json").out.count('"installed"') == 1


def test_a_file_that_is_not_ours_is_left_alone(
    fence: Fence, lake: LakeFSControl, repository: str, write: Callable[[str, str], str]
) -> None:
    foreign = write(ACTION_PATH, "name: mine\non:\n  post-commit:\nhooks: []\n")
    assert not lake.has_fence(repository, foreign)
    ended = fence("install")
    assert ended.code == 3
    assert "is not Perago's" in ended.err
    assert head(lake, repository) == foreign


def test_install_works_on_a_protected_branch(
    fence: Fence, lakefs: LakeFSClient, lake: LakeFSControl, repository: str
) -> None:
    lakefs.repositories_api.set_branch_protection_rules(
        repository, [lakefs_sdk.BranchProtectionRule(pattern="trunk")]
    )
    assert fence("install").code == 0
    assert fence("verify").code == 0
    assert lake.has_fence(repository, head(lake, repository))


def test_install_takes_another_branch(
    fence: Fence, lakefs: LakeFSClient, lake: LakeFSControl, repository: str
) -> None:
    lake.create_branch(StagingBranch(repository, "side"), "trunk")
    assert "'side' of" in fence("install", "--branch", "side").out
    assert not lake.has_fence(repository, head(lake, repository))
    assert fence("status", "--branch", "side").code == 0
    assert fence("status").code == 1


def test_a_branch_with_uncommitted_changes_is_refused(
    fence: Fence, lakefs: LakeFSClient, repository: str
) -> None:
    lakefs.objects_api.upload_object(repository, "trunk", "a.txt", content=b"a")
    ended = fence("install")
    assert ended.code == 4
    assert "has uncommitted changes" in ended.err
    assert "Try: Commit or reset them" in ended.err
    assert branches(lakefs, repository) == ["trunk"]


def test_verify_proves_the_fence_and_leaves_nothing_behind(
    fence: Fence, lakefs: LakeFSClient, lake: LakeFSControl, repository: str
) -> None:
    fence("install")
    before = head(lake, repository)
    ended = fence("verify")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "a merge that expects another head: refused",
        "a merge that expects this head: landed",
        "a merge that expects nothing: landed",
        "the fence holds",
    ]
    assert head(lake, repository) == before
    assert branches(lakefs, repository) == ["trunk"]
    assert paths(lakefs, repository) == [ACTION_PATH]


def test_verify_without_a_fence_proves_nothing(fence: Fence) -> None:
    ended = fence("verify", "--json")
    assert ended.code == 1
    report = json.loads(ended.out)
    assert (report["state"], report["holds"]) == ("missing", False)
    assert report["refuses_wrong_head"] is None


def test_verify_tells_a_repository_whose_other_hooks_refuse_every_merge(
    fence: Fence, write: Callable[[str, str], str]
) -> None:
    fence("install")
    write(
        "_lakefs_actions/never.yaml",
        "name: never\non:\n  pre-merge:\nhooks:\n  - id: no\n    type: lua\n"
        '    properties:\n      script: error("never")\n',
    )
    ended = fence("verify")
    assert ended.code == 1
    assert "the fence refuses too much" in ended.out


class Failing(LakeFSControl):
    """The real server, with an outage at the first merge."""

    def merge(self, staged: StagedWorkspace, target: str, **_: object) -> str:
        raise BackendUnavailableError("the line is cut")


def test_verify_cleans_up_when_it_is_cut_off(
    fence: Fence, lakefs: LakeFSClient, repository: str, connection: object
) -> None:
    fence("install")
    admin = FenceAdmin(Failing(connection), lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(BackendUnavailableError):
        admin.verify(repository)
    assert branches(lakefs, repository) == ["trunk"]


def test_a_refusal_by_a_hook_is_told_apart_from_other_refusals(
    fence: Fence, lake: LakeFSControl, repository: str
) -> None:
    fence("install")
    staging = StagingBranch(repository, "staging")
    lake.create_branch(staging, "trunk")
    lake.write_small(staging, "a.txt", b"a")
    staged = lake.commit(staging, "a", {})
    with pytest.raises(PreconditionError, match="expected"):
        lake.merge(
            staged,
            "trunk",
            message="a",
            metadata={"perago.expected_head": "f" * 64},
            timeout=30,
        )


def test_a_repository_or_branch_that_is_not_there_is_3(
    fence: Fence, lake: LakeFSControl, tmp_path: Path, settings: dict[str, str], repository: str
) -> None:
    assert fence("status", "--branch", "nowhere").code == 3
    ended = run_perago("fence", "install", "no-such-repo", folder=tmp_path, extra=settings)
    assert ended.code == 3
    assert "no-such-repo" in ended.err
    with pytest.raises(NotFoundError):
        lake.has_fence(repository, "f" * 64)


def test_wrong_credentials_are_3_and_the_secret_is_not_shown(
    tmp_path: Path, settings: dict[str, str], repository: str
) -> None:
    wrong = {**settings, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "open-sesame"}
    ended = run_perago("fence", "status", repository, folder=tmp_path, extra=wrong)
    assert ended.code == 3
    assert "PRG-602" in ended.err
    assert "open-sesame" not in ended.err
