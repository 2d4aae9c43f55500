"""The tutorial's commands lead from nothing to a published Spark table."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from perago import dev
from support.terminal import Terminal

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
# What installs the package, and what starts and stops a stack, is done by the fixtures here.
_LEFT_OUT = ("python3 -m venv", "pip install", "perago dev ", "eval ", "kill %1")


def commands() -> list[str]:
    """The commands of the page, one a line."""
    blocks = [it for it in MarkdownIt("commonmark").parse(PAGE) if it.type == "fence"]
    lines = [line for block in blocks if not block.info for line in block.content.splitlines()]
    return [line for line in lines if not line.startswith(_LEFT_OUT)]


def test_the_page_gives_the_commands_from_a_project_to_a_second_run() -> None:
    found = [re.findall(r"perago (\w+)(?: (\w+))?", line) for line in commands()]
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
def test_the_commands_lead_to_the_table_that_the_page_shows(terminal: Terminal) -> None:
    """For a project of another name: the servers may have kept data of an earlier run."""
    name = f"shop-{uuid.uuid4().hex[:12]}"
    for command in commands():
        given = command.replace("shop_clean", f"{name.replace('-', '_')}_clean")
        # But not the column of the data.
        given = re.sub(r"\bshop\b(?!,)", name, given)
        assert terminal.give(given, 200) == 0, terminal.text()
    text = terminal.text()
    # The outputs that the page shows are those that come.
    shown = re.findall(r"^  (?:clean|totals): .*$", PAGE, re.MULTILINE)
    assert len(shown) == 4
    for line in shown:
        assert line in text
    for row in re.findall(r"^\d +(2026-\d\d-\d\d +[\d.]+)$", PAGE, re.MULTILINE):
        assert row in text
    assert terminal.give("kill %1; wait %1; true") == 0
