"""The commands that pages and deployment files give, and whether the command line has them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from perago.cli import app

# What ends a command in a shell.
_ENDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "2>", "<"})
# `[--json]`, `FILE…`, `status|verify`: how a synopsis writes what is optional, repeated or chosen.
_SYNOPSIS = str.maketrans("", "", "[]…")


def commands_in(script: str) -> Iterator[list[str]]:
    """Each `perago …` of a script or a synopsis as a list of words, without `perago` itself."""
    for line in _joined(script):
        yield from _parts(line)


def _joined(script: str) -> Iterator[str]:
    """The lines, with those that end in a backslash and indented synopses put together."""
    text = re.sub(r"\\\n\s*", " ", script)
    text = re.sub(r"\n {8,}(?=\[)", " ", text)
    yield from text.splitlines()


def _parts(line: str) -> Iterator[list[str]]:
    line = line.strip().removeprefix("$ ")
    for inner in re.findall(r"\$\((perago [^)]*)\)", line):
        yield from _parts(inner)
    line = re.sub(r"\"?\$\(perago [^)]*\)\"?", "X", line)
    line = re.sub(r"(^|\s)#.*", "", line)
    try:
        words = shlex.split(line, posix=True)
    except ValueError:
        return
    found: list[str] | None = None
    for word in words:
        if found is None:
            # At the beginning of a command only: a sentence of an output may have the word, too.
            found = [] if re.fullmatch(r"(?:\S*/)?perago", word) and _begins(words, word) else None
        elif word in _ENDS or re.match(r"\d?[<>]", word):
            yield found
            found = None
        elif word.endswith(";"):
            yield [*found, word[:-1]]
            found = None
        else:
            found.append(word)
    if found is not None:
        yield found


def _begins(words: list[str], word: str) -> bool:
    before = words[: words.index(word)]
    # Behind another command, or behind settings for this one: `A=b perago …`.
    return all("=" in it for it in before) or any(it in _ENDS for it in before)


@cache
def _root() -> Any:
    return typer.main.get_command(app)


def problem_with(words: list[str]) -> str | None:
    """Say what the command line does not have of a command; None if it has everything."""
    command, path = _root(), "perago"
    rest = list(words)
    while rest and hasattr(command, "commands"):
        name = rest[0].translate(_SYNOPSIS)
        if name.startswith("-"):
            break
        if name == "COMMAND":  # stands for any of them
            return None
        chosen = name.split("|")
        unknown = [it for it in chosen if it not in command.commands]
        if unknown:
            return f"{path} has no command {unknown[0]!r}"
        command, path = command.commands[chosen[0]], f"{path} {chosen[0]}"
        rest.pop(0)
    known = {name for option in command.params for name in option.opts}
    known |= {"-h", "--help"} | (
        {"--install-completion", "--show-completion"} if not words else set()
    )
    for word in rest:
        option = word.translate(_SYNOPSIS).partition("=")[0]
        if re.fullmatch(r"--?[a-z][a-z-]*", option) and option not in known:
            return f"{path} has no option {option!r}"
    return None


def parse(words: list[str]) -> dict[str, Any]:
    """Parse a command as the command line does, without running it; its options and arguments."""
    command, rest = _root(), list(words)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    parsed: dict[str, Any] = command.make_context(words[0], rest).params
    return parsed
