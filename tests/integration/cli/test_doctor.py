"""`perago doctor` on real servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lakefs_sdk.client import LakeFSClient

from support.command_line import run_perago
from support.workers import TASK_MODULES

pytestmark = pytest.mark.servers


def test_a_healthy_set_up_is_all_right_and_trying_its_rights_leaves_nothing(
    settings: dict[str, str], repository: str, lakefs: LakeFSClient, tmp_path: Path
) -> None:
    before = lakefs.branches_api.get_branch(repository, "trunk").commit_id
    extra = {**settings, "PERAGO_WORKSPACE_ROOT": str(tmp_path / "root")}
    ended = run_perago("doctor", "--try", repository, "--json", folder=tmp_path, extra=extra)
    report = json.loads(ended.out)
    wrong = [item for item in report["findings"] if not item["ok"]]
    assert (ended.code, report["ok"], wrong) == (0, True, [])
    texts = {item["check"]: item["text"] for item in report["findings"]}
    assert "answers, version " in texts["LakeFS"]
    assert "answers, version 3." in texts["Conductor"]
    assert texts["LakeFS's clock"] == texts["Conductor's clock"] == "agrees with this machine's"
    assert texts.get("dead workers", "are noticed ").startswith("are noticed ")
    assert texts["LakeFS right to merge"] == f"tried in {repository!r}"
    branches = lakefs.branches_api.list_branches(repository).results
    assert [(item.id, item.commit_id) for item in branches] == [("trunk", before)]
    assert lakefs.tags_api.list_tags(repository).results == []


def test_a_broken_one_says_what_to_do(settings: dict[str, str], tmp_path: Path) -> None:
    extra = {
        **settings,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "not-the-secret",
        "PERAGO_WORKSPACE_ROOT": str(tmp_path / "root"),
    }
    ended = run_perago("doctor", "bodies:w_write", folder=TASK_MODULES, extra=extra)
    assert ended.code == 1
    lines = ended.out.splitlines()
    [denied] = [number for number, line in enumerate(lines) if line.startswith("✗ LakeFS: ")]
    assert "LAKECTL_SERVER_ENDPOINT_URL=" in lines[denied]
    assert lines[denied + 1].startswith("  Try: ")
    assert "not-the-secret" not in ended.out + ended.err
    assert any(line.startswith("✓ Conductor: ") for line in lines)
