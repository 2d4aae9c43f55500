"""The mistakes that people make: each message says what is wrong and what to write.

A reader must be able to mend each without the docs, so the whole text is held here, with the exit
code. Mistakes that only a server can answer are in tests/integration, and what Conductor shows of
an attempt in tests/unit/protocol/test_reasons.py.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.cli import output
from perago.dashboard.server import Dashboard
from perago.errors import ConfigurationError, PeragoError, SetupError
from perago.http_client import Answer
from perago.lakefs.errors import from_answer
from perago.observability.health import HealthServer
from perago.observability.metrics import WorkerMetrics
from perago.protocol.outcome import bare_reason, failure_of, told_hint, told_reason
from perago.settings import Address
from support import dashboard_world, workflows
from support.command_line import Ended, run_code, run_perago

TASKS = """\
from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, require_glob, task


class CleanParams(BaseModel):
    smallest: float = 0.0
    mistake: str = ""


class CleanResult(BaseModel):
    rows: float


SALES = WorkspaceSpec(prefix="sales", pre=[require_glob("*.csv")])


@task(name="clean", owner_email="data@example.com", workspace=SALES)
def clean(workspace: Path, params: CleanParams) -> CleanResult:
    match params.mistake:
        case "key":
            return CleanResult(rows={}["amount"])
        case "link":
            (workspace / "latest").symlink_to("a.csv")
        case "result":
            return {"rows": "many"}
        case "nan":
            return CleanResult(rows=float("nan"))
        case "exit":
            raise SystemExit(3)
        case "disk":
            Path("/dev/full").write_text("x")
    return CleanResult(rows=1)
"""
DOCTOR = "`perago doctor` checks the settings, the servers and this machine."
LAKEFS_IS_AWAY = (
    "Check that LakeFS is up and reachable from this machine: LAKECTL_SERVER_ENDPOINT_URL has its "
    "address."
)
CONDUCTOR_IS_AWAY = (
    "Check that Conductor is up and reachable from this machine: CONDUCTOR_SERVER_URL has its "
    "address."
)
DENIED = (
    "Check LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY, and what "
    "their user may do."
)
KEYS = {
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "some-key",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "open-sesame",
}


def line_of(text: str) -> int:
    """The line of the module that has a text, counted from 1."""
    return next(n for n, line in enumerate(TASKS.splitlines(), start=1) if text in line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("id\n1\n")
    return tmp_path


@pytest.fixture
def closed() -> Iterator[int]:
    """A port that nobody listens on: bound, so that nobody else takes it meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def said(done: Ended) -> list[str]:
    """The lines of an error, without those of the phases before it."""
    lines = (done.out + done.err).splitlines()
    return [line for line in lines if not line.startswith(PHASES)]


PHASES = ("validate: ", "pre_guardrails: ", "body: ", "check_result: ", "post_", "check_files: ")


# Modules and definitions


@pytest.mark.parametrize("command", ["check", "start", "extract", "register"])
def test_a_module_that_does_not_exist(folder: Path, command: str) -> None:
    done = run_perago(command, "task", folder=folder)
    text = (
        f"no module named 'task' in {folder} or on the Python path: "
        "run from the folder it is in, or install it"
    )
    others = [
        f"PRG-101 DefinitionError: {text}",
        "Try: Correct the definition, then run `perago check MODULE`.",
    ]
    of_check = [f"error: {text}", "1 problem to correct"]
    assert (done.code, said(done)) == (2, of_check if command == "check" else others)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("tasks.py", "'tasks.py' is not the name of a module: write tasks"),
        ("tasks:claen", "module 'tasks' has no task 'claen'; it has: clean"),
        ("empty", "module 'empty' has no function decorated with @task"),
    ],
)
def test_a_name_that_is_almost_right(folder: Path, target: str, text: str) -> None:
    (folder / "empty.py").write_text("")
    done = run_perago("check", target, folder=folder)
    assert (done.code, said(done)) == (2, [f"error: {text}", "1 problem to correct"])


def test_a_syntax_error(folder: Path) -> None:
    (folder / "broken.py").write_text("from perago import task\n\ndef clean(:\n")
    done = run_perago("start", "broken", folder=folder)
    assert (done.code, said(done)) == (
        2,
        [
            "PRG-101 DefinitionError: broken.py:3: module 'broken' is not valid Python: "
            "invalid syntax",
            "Try: Correct the definition, then run `perago check MODULE`.",
        ],
    )


def test_a_package_that_is_not_installed(folder: Path) -> None:
    (folder / "broken.py").write_text("import pandaz\n")
    done = run_perago("check", "broken", folder=folder)
    assert (done.code, said(done)[0]) == (
        2,
        "error: broken.py:1: module 'broken' cannot be imported: it needs 'pandaz', which is not "
        "installed",
    )


def test_a_prefix_that_leads_out_of_the_repository(folder: Path) -> None:
    (folder / "broken.py").write_text(TASKS.replace('prefix="sales"', 'prefix="../sales"'))
    done = run_perago("check", "broken", folder=folder)
    assert (done.code, said(done)[0]) == (
        2,
        f"error: broken.py:{line_of('@task(')}: task 'clean': WorkspaceSpec.prefix '../sales': "
        "write a folder like 'audio/render', without '.', '..', '//', backslashes or control "
        "characters",
    )


# Settings and servers


def test_credentials_that_are_missing(folder: Path) -> None:
    done = run_perago("start", "tasks", folder=folder)
    assert (done.code, said(done)) == (
        2,
        [
            "PRG-102 ConfigurationError: not set: CONDUCTOR_SERVER_URL",
            "not set: LAKECTL_SERVER_ENDPOINT_URL, LAKECTL_CREDENTIALS_ACCESS_KEY_ID, "
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
            'Try: Set them in the environment; for the embedded servers: eval "$(perago dev env)".',
            DOCTOR,
        ],
    )


def test_an_address_without_a_scheme_and_a_metrics_address_without_a_host(folder: Path) -> None:
    given = {"CONDUCTOR_SERVER_URL": "localhost:8080", "PERAGO_METRICS_ADDRESS": "9464"}
    done = run_perago("start", "tasks", folder=folder, extra=given)
    assert (done.code, said(done)) == (
        2,
        [
            "PRG-102 ConfigurationError: CONDUCTOR_SERVER_URL (environment): write an http:// or "
            "https:// address with a host",
            "PERAGO_METRICS_ADDRESS (environment): write host:port, for example 127.0.0.1:9464, "
            "or off",
            "Try: Correct the settings named above; docs/configuration.md lists every setting.",
            DOCTOR,
        ],
    )


def test_a_key_in_a_file_that_is_misspelt(folder: Path) -> None:
    (folder / "perago.toml").write_text('lakefs-endpoin = "http://127.0.0.1:8000"\n')
    done = run_perago("config", "show", folder=folder)
    assert (done.code, said(done)[0]) == (
        2,
        "PRG-102 ConfigurationError: lakefs-endpoin (perago.toml): there is no such setting; "
        "the nearest is lakefs-endpoint",
    )


def test_lakefs_is_dead(folder: Path, closed: int) -> None:
    address = f"http://127.0.0.1:{closed}"
    given = {**KEYS, "LAKECTL_SERVER_ENDPOINT_URL": address}
    done = run_perago("workspace", "ls", "shop", folder=folder, extra=given)
    assert (done.code, said(done)) == (
        3,
        [
            "PRG-601 BackendUnavailableError: LakeFS did not answer to read repository 'shop': "
            "ConnectError: [Errno 111] Connection refused",
            f"Try: {LAKEFS_IS_AWAY}",
            f"LakeFS's address is {address} (LAKECTL_SERVER_ENDPOINT_URL, environment).",
            DOCTOR,
        ],
    )


def test_conductor_is_dead(folder: Path, closed: int) -> None:
    address = f"http://127.0.0.1:{closed}/api"
    given = {"CONDUCTOR_SERVER_URL": address}
    done = run_perago("register", "tasks", folder=folder, extra=given)
    assert (done.code, said(done)) == (
        3,
        [
            "PRG-601 BackendUnavailableError: Conductor did not answer to read TaskDef 'clean': "
            "ConnectError: [Errno 111] Connection refused",
            f"Try: {CONDUCTOR_IS_AWAY}",
            f"Conductor's address is {address} (CONDUCTOR_SERVER_URL, environment).",
            DOCTOR,
        ],
    )


def test_both_servers_are_dead_and_a_worker_names_both(folder: Path, closed: int) -> None:
    address = f"http://127.0.0.1:{closed}"
    given = {
        **KEYS,
        "LAKECTL_SERVER_ENDPOINT_URL": address,
        "CONDUCTOR_SERVER_URL": f"{address}/api",
    }
    done = run_perago("start", "tasks", folder=folder, extra=given)
    refused = "ConnectError: [Errno 111] Connection refused"
    assert (done.code, said(done)) == (
        3,
        [
            f"PRG-601 BackendUnavailableError: CONDUCTOR_SERVER_URL={address}/api: Conductor did "
            f"not answer to read TaskDef 'clean': {refused}",
            f"LAKECTL_SERVER_ENDPOINT_URL={address}: LakeFS did not answer to check the "
            f"credentials: {refused}",
            f"Try: {CONDUCTOR_IS_AWAY} {LAKEFS_IS_AWAY}",
            DOCTOR,
        ],
    )
    assert "open-sesame" not in done.out + done.err


def test_an_error_about_credentials_names_the_server_and_not_the_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", "http://127.0.0.1:8000")
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    answer = Answer(401, b'{"message": "error authenticating request"}')
    output.explain(from_answer("read repository 'shop'", answer, changes=False))
    printed = capsys.readouterr().err
    assert printed.splitlines() == [
        "PRG-602 BackendDeniedError: LakeFS could not read repository 'shop': 401 error "
        "authenticating request",
        f"Try: {DENIED}",
        "LakeFS's address is http://127.0.0.1:8000 (LAKECTL_SERVER_ENDPOINT_URL, environment).",
        "LakeFS's key is some-key (LAKECTL_CREDENTIALS_ACCESS_KEY_ID, environment).",
        DOCTOR,
    ]


# What Conductor says to a request that is meant for LakeFS.
FOREIGN = (
    b'{"status": 404, "message": "No static resource api/v1/user.", "instance": "here", '
    b'"retryable": false}'
)


def test_the_address_of_lakefs_is_that_of_conductor() -> None:
    """The reverse, and both on real servers, are in tests/integration/cli/test_mistakes.py."""
    error = from_answer("check the credentials", Answer(404, FOREIGN), changes=False)
    assert explained(error) == [
        "PRG-601 BackendUnavailableError: what answered to check the credentials is not LakeFS: "
        "404 No static resource api/v1/user.",
        "Try: Set LAKECTL_SERVER_ENDPOINT_URL to the address of LakeFS itself, and not of another "
        "server, a proxy or a login page.",
    ]


def explained(error: PeragoError) -> list[str]:
    return [f"{error.code} {type(error).__name__}: {error}", f"Try: {error.hint}"]


def test_the_port_of_the_dashboard_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sources = dashboard_world.empty().sources
        with pytest.raises(SetupError) as caught, Dashboard(sources, port=port):
            pass
    assert caught.value.exit_code == 2
    assert explained(caught.value) == [
        f"PRG-103 SetupError: the dashboard cannot listen on 127.0.0.1:{port}: "
        "Address already in use",
        "Try: Give another port with --ui-port, or leave the dashboard out.",
    ]


def test_the_port_of_the_metrics_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        server = HealthServer(address, WorkerMetrics(), list)
        with pytest.raises(ConfigurationError) as caught, server:
            pass
    output.explain(caught.value)
    assert caught.value.exit_code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"PRG-102 ConfigurationError: PERAGO_METRICS_ADDRESS: cannot listen on {address}: "
        "Address already in use",
        "Try: Choose another address or a free port (port 0 takes one), or set it to off.",
        DOCTOR,
    ]


def test_the_stack_of_another_folder_is_meant(folder: Path) -> None:
    done = run_perago("dev", "env", "--data-dir", "my stack", folder=folder)
    assert (done.code, said(done)) == (
        2,
        [
            f"PRG-103 SetupError: no stack runs in {folder / 'my stack'}",
            "Try: Start one with `perago dev up --data-dir 'my stack' --detach`.",
            DOCTOR,
        ],
    )


# Bodies, params and results


def run_body(folder: Path, **params: Any) -> Ended:
    given = ["--workspace", "data", "--params", json.dumps(params)]
    return run_perago("run", "tasks", *given, folder=folder)


def test_a_key_error_in_a_body(folder: Path) -> None:
    done = run_body(folder, mistake="key")
    assert done.code == 1
    lines = said(done)
    # The author's own frames, and none of those that called them.
    assert lines[0] == "Traceback (most recent call last):"
    assert f'  File "{folder / "tasks.py"}", line {line_of("amount")}, in clean' in lines
    assert sum(line.startswith("  File ") for line in lines) == 1
    assert lines[-1] == "the task failed: KeyError: 'amount'"


@pytest.mark.parametrize(
    ("mistake", "text", "hint"),
    [
        (
            "link",
            "PRG-401 ProjectionError: workspace publication does not support symlinks: latest",
            "Put a file with the content in its place, or remove it before the task returns.",
        ),
        (
            "result",
            "PRG-305 ResultError: the result does not fit CleanResult: rows: Input should be a "
            "valid number, unable to parse string as a number",
            "Return the declared model; put large data into the workspace, not into the result.",
        ),
        (
            "nan",
            "PRG-305 ResultError: the result cannot be written as JSON: it has NaN or an infinite "
            "number, which JSON does not have",
            "Return the declared model; put large data into the workspace, not into the result.",
        ),
        (
            "exit",
            "PRG-303 BodyError: the task body called sys.exit(3)",
            "Return from the task or raise TaskFailed; sys.exit() belongs into scripts.",
        ),
    ],
)
def test_a_body_that_returns_what_cannot_be_published(
    folder: Path, mistake: str, text: str, hint: str
) -> None:
    done = run_body(folder, mistake=mistake)
    assert (done.code, said(done)) == (1, [text, f"Try: {hint}"])


def test_params_that_are_misspelt_or_do_not_fit(folder: Path) -> None:
    done = run_body(folder, smalest=10)
    assert (done.code, said(done)) == (
        1,
        [
            "PRG-201 InputError: params: smalest: there is no such key; known are smallest, "
            "mistake",
            "Try: Correct --params.",
        ],
    )
    done = run_body(folder, smallest="many")
    assert said(done)[0] == (
        "PRG-201 InputError: params: smallest: Input should be a valid number, unable to parse "
        "string as a number"
    )


def test_data_that_is_not_there(folder: Path) -> None:
    (folder / "data" / "a.csv").unlink()
    done = run_body(folder)
    assert (done.code, said(done)) == (
        1,
        [
            "PRG-211 PreGuardrailViolation: '*.csv' matches 0 files, at least 1 required",
            "Try: Correct the step that produced this workspace, then start a new workflow.",
        ],
    )


def test_the_disk_is_full_in_a_body(folder: Path) -> None:
    done = run_body(folder, mistake="disk")
    assert (done.code, said(done)) == (
        1,
        ["PRG-104 MachineError: [Errno 28] No space left on device", f"Try: {FREE_SPACE}", DOCTOR],
    )


def test_the_disk_is_full_where_a_command_writes(folder: Path) -> None:
    full = RUN_WITH_A_FULL_STDOUT.format(arguments=["check", "tasks"])
    done = run_code(full, folder=folder)
    assert (done.code, done.err.splitlines()) == (
        1,
        ["PRG-104 MachineError: [Errno 28] No space left on device", f"Try: {FREE_SPACE}", DOCTOR],
    )


FREE_SPACE = (
    "Free space on that disk; `perago sweep --yes` (PERAGO_WORKSPACE_ROOT) and `perago cache "
    "clear` (PERAGO_OBJECT_CACHE) remove what is no longer needed."
)
RUN_WITH_A_FULL_STDOUT = """
import os, sys
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
from perago import cli
sys.argv = ["perago", *{arguments}]
cli.main()
"""


# Workflows


def step(name: str, workspace: str, **params: Any) -> dict[str, Any]:
    inputs = {"workspace": workspace, "params": params}
    return workflows.simple_task("clean", inputs, reference=name)


def check_workflow(folder: Path, *tasks: dict[str, Any]) -> list[str]:
    workflow = {"name": "wf", "ownerEmail": "data@example.com", "tasks": tasks}
    (folder / "workflow.json").write_text(json.dumps(workflow))
    done = run_perago("workflow", "check", "workflow.json", "tasks", folder=folder)
    assert done.code == 2
    return said(done)


def test_a_step_that_takes_the_wrong_workspace(folder: Path) -> None:
    start = "${workflow.input.workspace}"
    assert check_workflow(folder, step("one", start), step("two", start)) == [
        "error: step 'two': takes the workspace of the workflow's input, but step 'one' publishes "
        "to the same branch before it, so that it fails with PRG-502: write "
        '"workspace": "${one.output.workspace}"',
        "1 problem to correct",
    ]


def test_parallel_writers(folder: Path) -> None:
    start = "${workflow.input.workspace}"
    both = workflows.in_parallel([step("one", start), step("two", start)])
    assert check_workflow(folder, *both) == [
        "error: step 'fork': steps 'one' and 'two' publish to the same branch at the same time, so "
        "that all but one fail with PRG-502: run them one after the other, or give each a branch "
        "of its own",
        "1 problem to correct",
    ]


def test_params_of_a_step_that_are_misspelt(folder: Path) -> None:
    assert check_workflow(folder, step("one", "${workflow.input.workspace}", smalest=1)) == [
        "error: step 'one': params: CleanParams has no field 'smalest'; did you mean 'smallest'?",
        "1 problem to correct",
    ]


# What Conductor shows


def test_the_reason_in_conductor_has_the_code_and_what_to_do() -> None:
    failed = failure_of(ConfigurationError("not set: X", hint="Set X."))
    told = told_reason(failed)
    assert told == "ConfigurationError: not set: X [PRG-102] Try: Set X."
    assert (bare_reason(told), told_hint(told)) == (failed.reason, "Set X.")


@pytest.mark.parametrize("length", [300, 480, 500, 5000])
def test_the_reason_in_conductor_keeps_its_code_within_what_conductor_keeps(length: int) -> None:
    told = told_reason(failure_of(ConfigurationError("x" * length, hint="y" * 200)))
    assert len(told) <= 500
    assert "[PRG-102]" in told
    assert told_hint(told) in {None, "y" * 200}


def test_the_reason_of_an_author_s_exception_stays_as_it_is() -> None:
    told = told_reason(failure_of(KeyError("amount")))
    assert (told, told_hint(told)) == ("KeyError: 'amount'", None)
    assert bare_reason(told) == told


# Odd values and files


def test_json_that_is_nested_too_deeply(folder: Path) -> None:
    (folder / "p.json").write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    done = run_perago(
        "run", "tasks:clean", "--workspace", "data", "--params", "@p.json", folder=folder
    )
    assert done.code == 2
    assert "--params is nested too deeply" in done.err


def test_a_result_goes_to_no_special_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    for name, why in (("pipe", "it is no regular file"), ("loop", "Symlink loop")):
        done = run_perago("extract", "tasks", "-o", name, folder=folder)
        assert done.code == 2
        assert f"PRG-102 ConfigurationError: cannot write '{name}': {why}" in done.err
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)


def test_a_record_of_a_stack_that_cannot_be_read(folder: Path) -> None:
    (folder / "stack" / "stack.json").mkdir(parents=True)
    done = run_perago("dev", "status", "--data-dir", "stack", folder=folder)
    assert done.code == 2
    assert "PRG-103 SetupError: this version of Perago cannot read the record" in done.err


def test_a_data_folder_in_a_home_that_is_not_there(folder: Path) -> None:
    done = run_perago("dev", "status", "--data-dir", "~no-such-user/x", folder=folder)
    assert done.code == 2
    assert "PRG-102 ConfigurationError: '~no-such-user/x': there is no such home folder" in done.err


def test_a_workspace_root_that_is_a_file(folder: Path) -> None:
    done = run_perago("sweep", folder=folder, extra={"PERAGO_WORKSPACE_ROOT": "tasks.py"})
    assert done.code == 2
    assert f"PERAGO_WORKSPACE_ROOT names {folder}/tasks.py, which is not a folder" in done.err


def test_a_folder_in_the_place_of_a_module(folder: Path) -> None:
    done = run_perago("check", "data", folder=folder)
    assert done.code == 2
    text = "module 'data' has no function decorated with @task: it is a folder; write data.MODULE"
    assert text in done.out + done.err


def test_a_terminal_without_the_characters_of_a_result(folder: Path) -> None:
    (folder / "whole.py").write_text(TASKS.replace(", workspace=SALES", ""))
    done = run_code(
        "import sys\n"
        "sys.stdout.reconfigure(encoding='ascii', errors='strict')\n"
        "sys.argv = ['perago', 'check', 'whole']\n"
        "from perago.cli import main\n"
        "main()\n",
        folder=folder,
    )
    assert done.code == 0, done.err
    assert "\\u2026" in done.out
