"""The tutorial's commands lead from nothing to a published Spark table."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago import dev
from support.pasted_outputs import Block, as_shown, check_or_paste, read_blocks
from support.terminal import Terminal

FILE = Path(__file__).parents[2] / "docs" / "tutorial.md"
# What installs the package, and what starts and stops a stack, is done by the fixtures here.
_LEFT_OUT = ("python3 -m venv", "pip install", "perago dev ", "eval ", "kill %1")


def blocks() -> list[Block]:
    """The blocks of commands that are replayed."""
    found = read_blocks(FILE.read_text(encoding="utf-8"))
    return [it for it in found if not it.commands[0].startswith(_LEFT_OUT)]


def test_the_page_gives_the_commands_from_a_project_to_a_second_run() -> None:
    commands = [line for block in blocks() for line in block.commands]
    found = [re.findall(r"perago (\w+)(?: (\w+))?", line) for line in commands]
    assert [pair[0][0] for pair in found if pair] == [
        *("init", "check", "workflow", "run"),
        *("workspace", "workspace", "start", "workflow", "history", "workspace"),
        *("workspace", "workflow"),
    ]


@pytest.fixture
def terminal(spark_endpoints: dev.Endpoints, tmp_path: Path) -> Iterator[Terminal]:
    """One in which the servers are known already."""
    opened = Terminal(tmp_path, spark_endpoints.as_environment())
    yield opened
    opened.close()


@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_commands_print_what_the_page_shows(terminal: Terminal) -> None:
    """For a project of another name: the servers may have kept data of an earlier run."""
    name = f"shop-{uuid.uuid4().hex[:12]}"
    pythonic = name.replace("-", "_")
    names = {f"{terminal.folder}/": "…/", name: "shop", pythonic: "shop"}
    printed: list[tuple[Block, str]] = []
    for block in blocks():
        before = len(terminal.text())
        for command in block.commands:
            # But not the column of the data.
            given = re.sub(r"\bshop\b(?!,)", name, command.replace("shop_", f"{pythonic}_"))
            assert terminal.give(given, 200) == 0, terminal.text()
        if block.shown is not None:
            printed.append((block, as_shown(terminal.text()[before:], names)))
    assert len(printed) > 6
    check_or_paste(FILE, printed)
    assert terminal.give("kill %1; wait %1; true") == 0
