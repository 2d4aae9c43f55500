"""The mistakes that only a server can answer; `unit/cli/test_mistakes.py` has the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lakefs_sdk.client import LakeFSClient

from support.command_line import Ended, run_perago
from support.workers import TASK_MODULES
from support.workflows import simple_task

pytestmark = pytest.mark.servers
DOCTOR = "`perago doctor` checks the settings, the servers and this machine."


def lines(done: Ended) -> list[str]:
    return done.err.splitlines()


def test_a_wrong_secret(tmp_path: Path, settings: dict[str, str], repository: str) -> None:
    wrong = {**settings, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "open-sesame"}
    done = run_perago("workspace", "ls", repository, folder=tmp_path, extra=wrong)
    address = settings["LAKECTL_SERVER_ENDPOINT_URL"]
    key = settings["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"]
    assert (done.code, lines(done)) == (
        3,
        [
            f"PRG-602 BackendDeniedError: LakeFS could not read repository {repository!r}: "
            "401 error authenticating request",
            "Try: Check LAKECTL_CREDENTIALS_ACCESS_KEY_ID and "
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY, and what their user may do.",
            f"LakeFS's address is {address} (LAKECTL_SERVER_ENDPOINT_URL, environment).",
            f"LakeFS's key is {key} (LAKECTL_CREDENTIALS_ACCESS_KEY_ID, environment).",
            DOCTOR,
        ],
    )


def test_each_server_s_address_set_to_the_other_s(settings: dict[str, str]) -> None:
    swapped = {
        **settings,
        "LAKECTL_SERVER_ENDPOINT_URL": settings["CONDUCTOR_SERVER_URL"].removesuffix("/api"),
        "CONDUCTOR_SERVER_URL": f"{settings['LAKECTL_SERVER_ENDPOINT_URL']}/api",
    }
    done = run_perago("start", "bodies:w_write", folder=TASK_MODULES, extra=swapped)
    assert (done.code, lines(done)) == (
        3,
        [
            f"PRG-601 BackendUnavailableError: CONDUCTOR_SERVER_URL="
            f"{swapped['CONDUCTOR_SERVER_URL']}: what answered to read TaskDef 'w_write' is not "
            "Conductor: the answer is not JSON",
            f"LAKECTL_SERVER_ENDPOINT_URL={swapped['LAKECTL_SERVER_ENDPOINT_URL']}: what answered "
            "to check the credentials is not LakeFS: 404 No static resource api/v1/user.",
            f"Try: {own_address('CONDUCTOR_SERVER_URL', 'Conductor')} "
            f"{own_address('LAKECTL_SERVER_ENDPOINT_URL', 'LakeFS')}",
            DOCTOR,
        ],
    )


def own_address(setting: str, server: str) -> str:
    return (
        f"Set {setting} to the address of {server} itself, and not of another server, a proxy or "
        "a login page."
    )


def test_a_task_that_is_not_registered(settings: dict[str, str], tmp_path: Path) -> None:
    """One of its own: other tests register those of the suite."""
    module = (TASK_MODULES / "bodies.py").read_text(encoding="utf-8")
    (tmp_path / "strangers.py").write_text(module.replace('"w_write"', '"w_stranger"'))
    done = run_perago("start", "strangers:w_stranger", folder=tmp_path, extra=settings)
    assert (done.code, lines(done)) == (
        2,
        [
            "PRG-102 ConfigurationError: task 'w_stranger' is not registered in Conductor",
            "Try: Run `perago register MODULE`, or start with --register.",
            DOCTOR,
        ],
    )


def test_a_repository_and_a_branch_that_do_not_exist(
    tmp_path: Path, settings: dict[str, str], repository: str
) -> None:
    for command in (
        ["workspace", "ls", f"{repository}@nowhere"],
        ["history", repository, "nowhere"],
        ["fence", "status", repository, "--branch", "nowhere"],
    ):
        done = run_perago(*command, folder=tmp_path, extra=settings)
        assert (done.code, lines(done)) == (
            3,
            [
                f"PRG-604 NotFoundError: repository {repository!r} has no branch, tag or commit "
                "'nowhere'; its branches: trunk",
                "Try: Correct the name. `perago workspace put … --create` creates a branch.",
            ],
        )
    done = run_perago("history", "nowhere-at-all", folder=tmp_path, extra=settings)
    first, hint = lines(done)
    assert first.startswith("PRG-604 NotFoundError: LakeFS has no repository 'nowhere-at-all'; it ")
    assert hint == (
        "Try: Correct the name, or create it: `perago workspace put DIR nowhere-at-all -m MESSAGE "
        "--create`."
    )


def run_workflow(
    folder: Path, settings: dict[str, str], repository: str, branch: str, ref: str
) -> Ended:
    inputs = {"workspace": "${workflow.input.workspace}", "params": {}}
    step = simple_task("clean", inputs, reference="clean")
    workflow = {"name": "wf", "ownerEmail": "data@example.com", "tasks": [step]}
    (folder / "workflow.json").write_text(json.dumps(workflow))
    workspace = {"repository": repository, "branch": branch, "ref_type": "commit", "ref": ref}
    given = json.dumps({"workspace": workspace})
    options = ["--input", given, "--timeout", "0"]
    return run_perago("workflow", "run", "workflow.json", *options, folder=folder, extra=settings)


@pytest.mark.parametrize(
    ("branch", "ref", "code", "text"),
    [
        (
            "trunk",
            "abc",
            2,
            "PRG-102 ConfigurationError: the workspace of --input is wrong: ref must be a full "
            "commit id (64 hex digits), not 'abc'",
        ),
        (
            "trunk",
            "f" * 64,
            3,
            "PRG-604 NotFoundError: the workspace of --input is wrong: LakeFS could not read "
            f"commit {'f' * 64} of {{repository!r}}: 404 commit not found",
        ),
        (
            "nowhere",
            "f" * 64,
            3,
            "PRG-604 NotFoundError: the workspace of --input is wrong: LakeFS could not read "
            "branch 'nowhere' of {repository!r}: 404 branch not found",
        ),
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
    assert (done.code, lines(done)[:2]) == (
        code,
        [
            text.format(repository=repository),
            "Try: Correct it, or leave it out of --input and give --repository and --branch: they "
            "pin HEAD.",
        ],
    )


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
    head = lakefs.branches_api.get_branch(repository, "trunk").commit_id
    assert lines(done) == [
        f"warning: ref {stale} is not HEAD of 'trunk', which is at {head}: a step that publishes "
        "will fail with PRG-502. Give --repository and --branch to start from HEAD",
        "PRG-604 NotFoundError: Conductor has no TaskDef 'clean', which workflow 'wf' runs",
        "Try: Run `perago start MODULE --register`, or `perago register MODULE`, first.",
    ]
