"""Every command that a page gives is one that the command line has, with the options it has."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from support.documented_commands import commands_in, problem_with

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src" / "perago" / "operations" / "templates").glob("*.md.tmpl")),
]
# The languages of blocks that hold commands; one without a language may.
_SHELL = {"", "console", "bash", "sh"}


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The code blocks of a page, each with its language."""
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type in {"fence", "code_block"}:
            yield token.info.strip(), token.content


def snippets(page: Path) -> Iterator[str]:
    """The commands of a page: in blocks, and in the text between backquotes."""
    for language, content in blocks(page):
        if language == "console":
            lines = content.splitlines()
            yield from (line for line in lines if line.startswith("$ "))
        elif language in _SHELL:
            yield content
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"(?<!`)`(perago [^`\n]+)`(?!`)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_exists(page: Path) -> None:
    problems = [
        f"perago {' '.join(words)}: {problem}"
        for snippet in snippets(page)
        for words in commands_in(snippet)
        if (problem := problem_with(words)) is not None
    ]
    assert problems == []


def test_the_pages_have_many_commands() -> None:
    found = [words for page in PAGES for text in snippets(page) for words in commands_in(text)]
    assert len(found) > 200
    assert {"start", "workflow", "workspace", "dev", "doctor"} <= {
        words[0] for words in found if words
    }


REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"), run_name="docs_reference")


@pytest.mark.parametrize("name", REFERENCE["PAGES"])
def test_the_reference_is_what_the_code_says(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert page == REFERENCE["PAGES"][name](page), "run: python docs/reference.py"


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        (
            "perago check a && perago run b --params '{\"x\": 1}'",
            [["check", "a"], ["run", "b", "--params", '{"x": 1}']],
        ),
        ('eval "$(perago dev env)"', [["dev", "env"]]),
        ("perago start a --register 2> worker.log &", [["start", "a", "--register"]]),
        ("$ perago gc  # list", [["gc"]]),
        ("A=b /srv/bin/perago gc --yes", [["gc", "--yes"]]),
        ("the perago of others", []),
        ("perago start M\n             [--master M]", [["start", "M", "[--master", "M]"]]),
    ],
)
def test_the_commands_of_a_script_are_found(script: str, commands: list[list[str]]) -> None:
    assert list(commands_in(script)) == commands


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["start", "m", "--register"], None),
        (["fence", "install|status|verify", "REPOSITORY", "[--json]"], None),
        (["strat", "m"], "perago has no command 'strat'"),
        (["dev", "upp"], "perago dev has no command 'upp'"),
        (["gc", "--force"], "perago gc has no option '--force'"),
        (["workflow", "run", "f", "[--nope]"], "perago workflow run has no option '--nope'"),
    ],
)
def test_a_wrong_command_is_named(words: list[str], problem: str | None) -> None:
    assert problem_with(words) == problem


_PARSERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_data_can_be_read(page: Path) -> None:
    for language, content in blocks(page):
        # An ellipsis stands for what is left out.
        if language in _PARSERS and "{…}" not in content:
            _PARSERS[language](content)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_python_can_be_compiled(page: Path) -> None:
    for language, content in blocks(page):
        if language == "python":
            compile(content, page.name, "exec", dont_inherit=True)
