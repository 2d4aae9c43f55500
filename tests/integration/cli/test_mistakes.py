"""The mistakes that only a server can answer; `unit/cli/test_mistakes.py` has the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lakefs_sdk.client import LakeFSClient

from support.command_line import Ended, run_perago
from support.workers import TASK_MODULES

pytestmark = pytest.mark.servers


def lines(done: Ended) -> list[str]:
    return done.err.splitlines()


def test_a_wrong_secret(tmp_path: Path, settings: dict[str, str], repository: str) -> None:
    wrong = {**settings, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "open-sesame"}
    done = run_perago("workspace", "ls", repository, folder=tmp_path, extra=wrong)
    assert done.code == 3
    first, *rest = lines(done)
    assert first.startswith("PRG-602 BackendDeniedError: LakeFS could not read repository ")
    key = settings["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"]
    assert f"LakeFS's key is {key} (LAKECTL_CREDENTIALS_ACCESS_KEY_ID, environment)." in rest
    assert "open-sesame" not in done.out + done.err


def test_each_server_s_address_set_to_the_other_s(settings: dict[str, str]) -> None:
    swapped = {
        **settings,
        "LAKECTL_SERVER_ENDPOINT_URL": settings["CONDUCTOR_SERVER_URL"].removesuffix("/api"),
        "CONDUCTOR_SERVER_URL": f"{settings['LAKECTL_SERVER_ENDPOINT_URL']}/api",
    }
    done = run_perago("start", "bodies:w_write", folder=TASK_MODULES, extra=swapped)
    assert done.code == 3
    for variable, server in (
        ("LAKECTL_SERVER_ENDPOINT_URL", "LakeFS"),
        ("CONDUCTOR_SERVER_URL", "Conductor"),
    ):
        (line,) = [it for it in lines(done) if f"{variable}={swapped[variable]}" in it]
        assert server in line
    assert "Check that" in done.err


def run_workflow(
    folder: Path, settings: dict[str, str], repository: str, branch: str, ref: str
) -> Ended:
    step = {
        "name": "clean",
        "taskReferenceName": "clean",
        "type": "SIMPLE",
        "inputParameters": {"workspace": "${workflow.input.workspace}", "params": {}},
    }
    workflow = {"name": "wf", "ownerEmail": "data@example.com", "tasks": [step]}
    (folder / "workflow.json").write_text(json.dumps(workflow))
    workspace = {"repository": repository, "branch": branch, "ref_type": "commit", "ref": ref}
    given = json.dumps({"workspace": workspace})
    options = ["--input", given, "--timeout", "0"]
    return run_perago("workflow", "run", "workflow.json", *options, folder=folder, extra=settings)


@pytest.mark.parametrize(
    ("branch", "ref", "code", "text"),
    [
        ("trunk", "abc", 2, "the workspace of --input is wrong: ref must be a full commit id"),
        ("trunk", "f" * 64, 3, "f" * 64),
        ("nowhere", "f" * 64, 3, "'nowhere'"),
    ],
    ids=["a short ref", "a ref that does not exist", "a branch that does not exist"],
)
def test_a_wrong_place_to_start_from(
    tmp_path: Path,
    settings: dict[str, str],
    repository: str,
    branch: str,
    ref: str,
    code: int,
    text: str,
) -> None:
    done = run_workflow(tmp_path, settings, repository, branch, ref)
    assert done.code == code, done.err
    assert text in lines(done)[0]


def test_a_ref_that_is_stale_and_a_task_that_is_not_registered(
    tmp_path: Path, settings: dict[str, str], repository: str, lakefs: LakeFSClient
) -> None:
    stale = lakefs.branches_api.get_branch(repository, "trunk").commit_id
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("id\n1\n")
    put = ["put", "data", f"{repository}@trunk", "-m", "orders"]
    assert run_perago("workspace", *put, folder=tmp_path, extra=settings).code == 0
    done = run_workflow(tmp_path, settings, repository, "trunk", stale)
    assert done.code == 3
    warning, *rest = lines(done)
    assert warning.startswith(f"warning: ref {stale} is not HEAD of 'trunk', which is at ")
    assert warning.endswith("Give --repository and --branch to start from HEAD")
    assert (
        "PRG-604 NotFoundError: Conductor has no TaskDef 'clean', which workflow 'wf' runs" in rest
    )
    assert "Try: Run `perago start MODULE --register`, or `perago register MODULE`, first." in rest
