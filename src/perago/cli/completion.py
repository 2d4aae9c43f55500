"""What a shell offers after TAB for ``MODULE[:task]``: the modules of this folder, and their tasks.

Modules are read as text and not imported: a press of TAB must run no code of the project.
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

# What is looked at: so many files, so many folders deep.
_MOST_FILES = 500
_DEEPEST = 3
_LARGEST_FILE = 1_000_000


@contextmanager
def words_of_bash() -> Iterator[None]:
    """Within the block, let bash complete a word with a colon, at which it breaks words.

    The words are put together again before they are read, and from what is offered the part up to
    the colon is taken away: bash has that already.
    """
    words = re.split(r"[ \n]", os.environ.get("COMP_WORDS", ""))
    in_last_word = os.environ.get("COMP_CWORD") == str(len(words) - 1)
    if os.environ.get("_PERAGO_COMPLETE") != "complete_bash" or not in_last_word:
        yield
        return
    joined = re.sub(r"(?<=\S)\n:(\n|$)", ":", "\n".join(words)).split("\n")
    os.environ |= {"COMP_WORDS": "\n".join(joined), "COMP_CWORD": str(len(joined) - 1)}
    before, colon, _ = joined[-1].rpartition(":")
    shell = sys.stdout
    with redirect_stdout(io.StringIO()) as offered:
        try:
            yield
        finally:
            for line in offered.getvalue().splitlines():
                shell.write(line.removeprefix(before + colon) + "\n")


def complete_target(incomplete: str) -> list[str]:
    """Complete a module, or after a colon a task of it."""
    module, colon, _ = incomplete.partition(":")
    return [f"{module}:{name}" for name in tasks_of(module)] if colon else complete_module()


def complete_module() -> list[str]:
    """Complete a module: those below this folder that have tasks."""
    return sorted(".".join(file.with_suffix("").parts) for file in _files() if _tasks_in(file))


def tasks_of(module: str) -> list[str]:
    """Return the names of the tasks of a module of this folder."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        return []
    file = Path(*parts)
    return _tasks_in(file.with_suffix(".py")) or _tasks_in(file / "__init__.py")


def _files() -> Iterator[Path]:
    """Yield the Python files that can be imported from here, the nearest first."""
    left, found = [Path()], 0
    while left:
        folder = left.pop(0)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            path = folder / entry.name
            if entry.is_dir():
                if entry.name.isidentifier() and len(path.parts) <= _DEEPEST:
                    left.append(path)
            elif path.suffix == ".py" and path.stem.isidentifier() and path.stem != "__init__":
                yield path
                found += 1
                if found == _MOST_FILES:
                    return


def _tasks_in(file: Path) -> list[str]:
    """Return the names in the ``@task(name=…)`` of a file, in their order."""
    try:
        if file.stat().st_size > _LARGEST_FILE:
            return []
        text = file.read_text(encoding="utf-8")
        if "perago" not in text:
            return []
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []
    decorators = (
        decorator
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
    )
    return [name for decorator in decorators if (name := _task_name(decorator)) is not None]


def _task_name(decorator: ast.expr) -> str | None:
    match decorator:
        case ast.Call(func=ast.Name(id="task") | ast.Attribute(attr="task"), keywords=keywords):
            for keyword in keywords:
                match keyword:
                    case ast.keyword(arg="name", value=ast.Constant(value=str(name))):
                        return name
    return None
