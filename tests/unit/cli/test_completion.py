"""What a shell offers for MODULE[:task], asked as the shells ask it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.command_line import run_code

TASKS = """\
import perago
from perago import task

raise SystemExit("a key runs no code")


@task(name="clean", owner_email="data@example.com")
def clean_events(params): ...


@perago.task(owner_email="data@example.com", name="count")
def other(params): ...


def helper(): ...
"""
ASK = """
import sys
sys.argv = ["perago"]
from perago import cli
cli.main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.py").write_text(TASKS)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.py").write_text(TASKS.replace("clean", "sum"))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "hidden.py").write_text(TASKS)
    # None of these has tasks.
    (tmp_path / "plain.py").write_text("import perago\n")
    (tmp_path / "broken.py").write_text("from perago import task\ndef (:\n")
    (tmp_path / "binary.py").write_bytes(b"perago \xff\x00")
    (tmp_path / "a-script.py").write_text(TASKS)
    return tmp_path


def bash(folder: Path, *words: str) -> list[str]:
    """bash breaks words at a colon, and the last word is the one at the cursor."""
    extra = {
        "_PERAGO_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = run_code(ASK, folder=folder, extra=extra)
    assert (done.code, done.err) == (0, "")
    return done.out.split()


COMMANDS = [["check"], ["start"], ["extract"], ["register"], ["run"], ["budget"], ["doctor"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words))
def test_every_command_that_takes_a_task_offers_modules_and_tasks(
    folder: Path, command: list[str]
) -> None:
    assert bash(folder, "perago", *command, "p") == ["pipeline"]
    assert bash(folder, "perago", *command, "pipeline", ":") == ["clean", "count"]
    assert bash(folder, "perago", *command, "pipeline", ":", "cl") == ["clean"]


def test_modules_of_packages_and_further_targets(folder: Path) -> None:
    assert bash(folder, "perago", "start", "pipeline", "s") == ["shop.orders"]
    asked = ["perago", "start", "pipeline", ":", "clean", "shop.orders", ":"]
    assert bash(folder, *asked) == ["sum", "count"]
    assert bash(folder, *asked[:5], "") == ["pipeline", "shop.orders"]
    assert bash(folder, "perago", "start", "--domain", "a", ":", "b", "p") == ["pipeline"]
    assert bash(folder, "perago", "start", "nowhere", ":") == []
    assert bash(folder, "perago", "start", "../pipeline", ":") == []


def test_a_workflow_is_checked_with_whole_modules(folder: Path) -> None:
    words = ["perago", "workflow", "check", "workflow.json", "pi"]
    assert bash(folder, *words) == ["pipeline"]


def test_a_shell_that_does_not_break_words_at_a_colon(folder: Path) -> None:
    extra = {
        "_PERAGO_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": "perago start pipeline:c",
    }
    done = run_code(ASK, folder=folder, extra=extra)
    assert done.code == 0
    assert re.findall(r"pipeline\W+\w+", done.out.replace("\\", "")) == [
        "pipeline:clean",
        "pipeline:count",
    ]
