"""The outputs on a page of commands: compared with what a replay prints, or pasted from it.

A block of commands has no language; a block of ``text`` before the next one is what they print.
What differs from run to run (ids, seconds, times, folders) is not compared. `PERAGO_PASTE=1` writes
what was printed into the page.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

_ID = r"[0-9a-f]{64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# When a step is seen to be scheduled, in progress or without a worker depends on when it was looked
# at; a shell with jobs tells of them when it likes.
_OF_THE_MOMENT = re.compile(
    r"^(waiting for .*|\S+: (scheduled|in progress|no worker has taken it).*|\[\d+\].*)\n",
    re.MULTILINE,
)
_MASKS = (
    (re.compile(r"\b[0-9a-f]{4}…|\b[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\d+ bytes moved"), "BYTES moved"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?( UTC|Z)?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?s\b"), "SECONDS"),
    (re.compile(r" +"), " "),
)


@dataclass(frozen=True)
class Block:
    """Commands, one a line, and the lines of the page between which their output is."""

    commands: list[str]
    shown: str | None
    lines: tuple[int, int]


def read_blocks(page: str) -> list[Block]:
    """The blocks of commands of a page, with their outputs."""
    blocks: list[Block] = []
    for token in MarkdownIt("commonmark").parse(page):
        if token.type != "fence" or token.map is None:
            continue
        if not token.info:
            blocks.append(Block(token.content.splitlines(), None, (0, 0)))
        elif token.info == "text" and blocks and blocks[-1].shown is None:
            inside = (token.map[0] + 1, token.map[1] - 1)
            blocks[-1] = Block(blocks[-1].commands, token.content, inside)
    return blocks


def as_shown(output: str, names: dict[str, str]) -> str:
    """An output as a page shows it: with the page's names, and the beginnings of ids."""
    for given, name in names.items():
        output = output.replace(given, name)
    output = re.sub(r"^\[\d+\].*\n", "", output, flags=re.MULTILINE)
    return re.sub(_ID, lambda found: f"{found[0][:4]}…", output)


def compared(output: str) -> str:
    """An output without what differs from run to run."""
    output = _OF_THE_MOMENT.sub("", output)
    for pattern, mask in _MASKS:
        output = pattern.sub(mask, output)
    return "\n".join(line.rstrip() for line in output.strip().splitlines())


def check_or_paste(file: Path, printed: list[tuple[Block, str]]) -> None:
    """Compare the outputs that a page shows with those that were printed, or write them there."""
    if os.environ.get("PERAGO_PASTE"):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        for block, output in reversed(printed):
            lines[slice(*block.lines)] = [output.rstrip("\n") + "\n"]
        file.write_text("".join(lines), encoding="utf-8")
        return
    for block, output in printed:
        assert compared(output) == compared(block.shown or ""), f"{block.commands}:\n{output}"
