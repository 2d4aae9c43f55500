"""The commands of the README's first minutes lead from nothing to a published commit."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lakefs_sdk.client import LakeFSClient

from perago import dev
from perago.connections import LakeFSConnection
from support.command_line import run_perago
from support.lake_sdk import connect
from support.pasted_outputs import Block, as_shown, compared, read_blocks
from support.terminal import Terminal
from support.waiting import until

ROOT = Path(__file__).parents[2]
RESULT = "day,amount\n2026-03-01,62.00\n2026-03-02,30.25\n2026-03-03,100.00\n"


def first_minutes() -> Block:
    """The commands, and what the page shows of what they print."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    return read_blocks(page.partition("\n## The first minutes\n")[2])[0]


def commands() -> list[str]:
    """The commands, one a line, without their comments."""
    return [re.split(r" {2,}# ", line)[0].strip() for line in first_minutes().commands]


def commits(client: LakeFSClient, repository: str) -> list[Any]:
    return list(client.refs_api.log_commits(repository, "main").results)


def branch_on_the_page(printed: str, repository: str) -> str:
    """Open the address that the worker printed, and then the page of the repository."""
    [address] = re.findall(r"^dashboard  (http\S+)$", printed, re.MULTILINE)
    with httpx.Client(follow_redirects=True, timeout=20, trust_env=False) as client:
        assert client.get(address).status_code == 200
        return client.get(httpx.URL(address).join(f"/repositories/{repository}")).text


def test_there_are_six_commands() -> None:
    assert len(commands()) == 6
    verbs = [re.findall(r"perago (\w+(?: (?:up|put|run|get))?)", line) for line in commands()]
    assert [found[0] for found in verbs] == [
        *["init", "dev up", "workspace put", "start", "workflow run", "workspace get"]
    ]


@pytest.fixture
def terminal(endpoints: dev.Endpoints, tmp_path: Path) -> Iterator[Terminal]:
    """One in which the servers are known already."""
    opened = Terminal(tmp_path, endpoints.as_environment())
    yield opened
    opened.close()


@pytest.fixture
def name() -> str:
    """A project that the servers do not know yet: they may have kept data of an earlier run."""
    return f"shop-{uuid.uuid4().hex[:12]}"


@pytest.mark.servers
def test_the_commands_lead_to_a_commit(
    terminal: Terminal, connection: LakeFSConnection, name: str
) -> None:
    """All but `dev up`, for a project of another name."""
    for command in commands():
        if "perago dev up" not in command:
            assert terminal.give(command.replace("shop", name)) == 0, terminal.text()
    project = terminal.folder / name
    assert (project / "result" / "sales" / "totals.csv").read_text() == RESULT
    made = commits(connect(connection), name)
    names = [commit.metadata.get("perago.reference_name") for commit in made[:3]]
    assert names == ["totals", "clean", None]
    text = terminal.text()
    assert re.search(rf"COMPLETED in [\d.]+ s: {name}@main at {made[0].id}", text), text
    assert 'totals: {"days": 3, "amount": 192.25}' in text
    assert made[0].id in branch_on_the_page(text, name)
    printed = compared(as_shown(text, {name: "shop"})).splitlines()
    shown = compared(str(first_minutes().shown)).splitlines()
    assert len(shown) == 7
    assert [line for line in shown if line not in printed] == []


@pytest.mark.servers
@pytest.mark.slow
def test_a_failure_and_an_interrupted_run_have_a_way_out(
    terminal: Terminal, connection: LakeFSConnection, name: str
) -> None:
    terminal.give(f"perago init {name} && cd {name}")
    terminal.give(f"perago workspace put data {name} --create -m orders")
    terminal.give("perago start pipeline --register 2> worker.log &")

    # A step whose guardrail fails: the exit code and the reason say so, and nothing is published.
    terminal.give(f"mkdir none && perago workspace put data {name}@bad --create -m orders")
    terminal.give(f"perago workspace put none {name}@bad -m 'no orders' --delete")
    run = f"perago workflow run workflow.json --repository {name}"
    assert terminal.give(f"{run} --branch bad -v") == 1, terminal.text()
    assert "PRG-211, try: " in terminal.text()
    assert re.search(r"^  pre_guardrails [\d.]+ s", terminal.text(), re.MULTILINE)

    # Without a worker, Ctrl-C leaves the workflow running; a worker that comes back completes it.
    assert terminal.give("kill %1; wait %1; true") == 0
    terminal.give(f"{run} --register 2> run.txt &")
    told = terminal.folder / name / "run.txt"
    until(lambda: "no worker has taken it" in told.read_text(), "the step to be waited for")
    assert "perago start MODULE" in told.read_text()
    assert terminal.give("kill -INT %1; wait %1") == 130, told.read_text()
    last = told.read_text().splitlines()[-1]
    assert last.startswith("the workflow goes on without this command; follow it again: ")
    terminal.give("perago start pipeline 2> worker.log &")
    assert terminal.give(last.partition("`")[2].removesuffix("`")) == 0, terminal.text()
    made = commits(connect(connection), name)
    assert [commit.message for commit in made][2] == "orders"
    assert terminal.give("kill %1; wait %1; true") == 0


@pytest.mark.servers
def test_mistakes_are_named_before_a_workflow_is_started(
    endpoints: dev.Endpoints, tmp_path: Path, name: str
) -> None:
    def perago(*arguments: str, code: int) -> str:
        folder = tmp_path / name if (tmp_path / name).exists() else tmp_path
        done = run_perago(*arguments, folder=folder, extra=endpoints.as_environment())
        assert done.code == code, done.err
        return done.err

    perago("init", name, code=0)
    perago("workspace", "put", "data", name, "--create", "-m", "x", code=0)
    run = ["workflow", "run", "workflow.json", "--timeout", "0"]
    said = perago(*run, "--repository", f"no-{name}", code=3)
    assert f"LakeFS has no repository 'no-{name}'" in said
    said = perago(*run, "--repository", name, "--branch", "nope", code=3)
    assert "has no branch, tag or commit 'nope'; its branches: main" in said
    assert "Try: Give --repository R [--branch B]." in perago(*run, code=2)
    said = perago(*run, "--repository", name, code=3)
    task = name.replace("-", "_")
    assert f"Conductor has no TaskDef '{task}_clean', '{task}_totals'" in said
    assert "perago start MODULE --register" in said


# The only test that is exactly what the README says: it starts a stack of its own.
@pytest.mark.servers
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_readme_as_it_is(tmp_path: Path) -> None:
    shell = Terminal(tmp_path, {})
    try:
        for command in commands():
            assert shell.give(command, 240) == 0, shell.text()
        totals = tmp_path / "shop" / "result" / "sales" / "totals.csv"
        assert totals.read_text() == RESULT
        assert shell.give("kill %1; wait %1; true") == 0
    finally:
        shell.give("perago dev down")
        shell.close()
