"""Check a workspace with guardrails before and after the body.

The guardrails in here check a list of relative paths, so that they mean the same for a folder and
for a LakeFS listing. Those of :mod:`perago.tasks.data` read data. An author can write a callable
that takes the workspace and raises :class:`~perago.errors.GuardrailViolation`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from perago.errors import GuardrailViolation
from perago.tasks.data import (
    DataGuardrail,
    Severity,
    Table,
    TableSpec,
    check_table,
    severity_problem,
)
from perago.tasks.globs import compile_glob, glob_problem, relative_path_problem
from perago.tasks.spark import SparkWorkspace
from perago.tasks.spark_table import SparkTable
from perago.text import show_path

_SHOWN = 5
# The modules of the functions that build guardrails; the functions are no guardrails.
_FACTORIES = frozenset({__name__, "perago.tasks.data"})


@runtime_checkable
class ListingGuardrail(Protocol):
    """A guardrail that checks paths only."""

    @property
    def severity(self) -> Severity: ...
    def check(self, paths: Sequence[str]) -> None: ...
    def problem(self) -> str | None: ...


Guardrail = ListingGuardrail | DataGuardrail | Callable[[Any], None]
# Takes what a guardrail found whose severity is "warn".
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RequireFile:
    """Requires a file."""

    path: str
    severity: Severity = "fail"

    def check(self, paths: Sequence[str]) -> None:
        if self.path not in paths:
            raise GuardrailViolation(f"required file is missing: {self.path}")

    def problem(self) -> str | None:
        return _plain_problem(self.path)


@dataclass(frozen=True, slots=True)
class RequireDir:
    """Requires a folder with at least one file; empty folders are never published."""

    path: str
    severity: Severity = "fail"

    def check(self, paths: Sequence[str]) -> None:
        below = self.path.removesuffix("/") + "/"
        if not any(path.startswith(below) for path in paths):
            raise GuardrailViolation(f"required folder is missing or empty: {self.path}")

    def problem(self) -> str | None:
        path: object = self.path
        return _plain_problem(path.removesuffix("/") if isinstance(path, str) else path)


@dataclass(frozen=True, slots=True)
class CountGlob:
    """Requires between ``min_count`` and ``max_count`` matching files."""

    pattern: str
    min_count: int = 1
    max_count: int | None = None
    severity: Severity = "fail"

    def check(self, paths: Sequence[str]) -> None:
        matches = compile_glob(self.pattern).fullmatch
        found = [path for path in paths if matches(path)]
        if len(found) < self.min_count:
            raise GuardrailViolation(
                f"{self.pattern!r} matches {len(found)} files, at least {self.min_count} required"
            )
        if self.max_count is not None and len(found) > self.max_count:
            shown = ", ".join(map(show_path, found[:_SHOWN]))
            more = ", …" if len(found) > _SHOWN else ""
            raise GuardrailViolation(
                f"{self.pattern!r} matches {len(found)} files, at most {self.max_count} allowed: "
                f"{shown}{more}"
            )

    def problem(self) -> str | None:
        if problem := glob_problem(self.pattern):
            return problem
        least, most = self.min_count, self.max_count
        whole = _is_whole(least) and (most is None or _is_whole(most))
        if not whole or least < 0 or (most is not None and most < least):
            return (
                f"{self.pattern!r}: write whole numbers, 0 <= min_count <= max_count, "
                f"not {least!r} and {most!r}"
            )
        return None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _plain_problem(path: object) -> str | None:
    """Explain what is wrong with a literal path, in which a star would match nothing."""
    if problem := relative_path_problem(path):
        return problem
    if "*" in str(path) or "?" in str(path):
        return f"{path!r} is a pattern: write require_glob({path!r})"
    return None


def require_file(path: str, *, severity: Severity = "fail") -> RequireFile:
    """Require the file at ``path``."""
    return RequireFile(path, severity)


def require_dir(path: str, *, severity: Severity = "fail") -> RequireDir:
    """Require the folder at ``path`` with at least one file."""
    return RequireDir(path, severity)


def require_glob(
    pattern: str,
    min_count: int = 1,
    max_count: int | None = None,
    *,
    severity: Severity = "fail",
) -> CountGlob:
    """Require between ``min_count`` and ``max_count`` files that match ``pattern``."""
    return CountGlob(pattern, min_count, max_count, severity)


def forbid_glob(pattern: str, *, severity: Severity = "fail") -> CountGlob:
    """Forbid files that match ``pattern``."""
    return CountGlob(pattern, 0, 0, severity)


def guardrail_problem(guardrail: object) -> str | None:
    """Explain what is wrong with one entry of ``pre`` or ``post``; None if nothing is."""
    if getattr(guardrail, "__module__", "") in _FACTORIES and inspect.isfunction(guardrail):
        # As a callable with one argument, it would accept every workspace.
        name = guardrail.__name__
        return f"{name} needs its argument: write {name}('path')"
    if isinstance(guardrail, ListingGuardrail | DataGuardrail):
        return guardrail.problem() or severity_problem(guardrail.severity)
    if not callable(guardrail):
        return (
            f"{guardrail!r} is not a guardrail; write require_file(…), require_glob(…) or "
            "a function that takes the workspace"
        )
    if inspect.iscoroutinefunction(guardrail) or not _takes_one_argument(guardrail):
        return f"{guardrail!r}: write a plain function that takes the workspace and nothing else"
    return None


def _takes_one_argument(guardrail: Callable[..., Any]) -> bool:
    try:
        inspect.signature(guardrail).bind(Path())
    except TypeError:
        return False
    except ValueError:  # some callables written in C have no signature
        return True
    return True


def check_folder(guardrails: Sequence[Guardrail], workspace: Path, warn: Warn) -> None:
    """Run guardrails on a local workspace; raises at the first that fails the attempt."""
    paths = cache(lambda: tuple(_files_below(workspace)))

    def open_table(spec: TableSpec) -> Table:
        from perago.tasks.file_table import FileTable  # most tasks do not need SQLite

        return FileTable(spec, workspace, paths())

    _check(guardrails, workspace, paths, open_table, warn)


def check_spark(guardrails: Sequence[Guardrail], workspace: SparkWorkspace, warn: Warn) -> None:
    """Run guardrails on what a Spark workspace reads; raises at the first that fails it."""
    _check(guardrails, workspace, workspace.paths, lambda it: SparkTable(it, workspace), warn)


def _check(
    guardrails: Sequence[Guardrail],
    workspace: Path | SparkWorkspace,
    paths: Callable[[], Sequence[str]],
    open_table: Callable[[TableSpec], Table],
    warn: Warn,
) -> None:
    """Run guardrails in order; those of one table run together, where the first of them is."""
    checked: set[TableSpec] = set()
    for guardrail in guardrails:
        if isinstance(guardrail, ListingGuardrail):
            _check_listing(guardrail, paths(), warn)
        elif not isinstance(guardrail, DataGuardrail):
            guardrail(workspace)
        elif guardrail.table not in checked:
            checked.add(guardrail.table)
            table = open_table(guardrail.table)
            _check_data(table, _guardrails_of(guardrail.table, guardrails), warn)


def _check_listing(guardrail: ListingGuardrail, paths: Sequence[str], warn: Warn) -> None:
    try:
        guardrail.check(paths)
    except GuardrailViolation as violation:
        if guardrail.severity == "fail":
            raise
        warn(str(violation))


def _guardrails_of(table: TableSpec, guardrails: Sequence[Guardrail]) -> list[DataGuardrail]:
    return [it for it in guardrails if isinstance(it, DataGuardrail) and it.table == table]


def _check_data(table: Table, guardrails: Sequence[DataGuardrail], warn: Warn) -> None:
    """Report every warning before the violations, which one exception names together."""
    broken = check_table(table, guardrails)
    for found in broken:
        if found.severity == "warn":
            warn(found.text)
    if failures := [found.text for found in broken if found.severity == "fail"]:
        raise GuardrailViolation("; ".join(failures))


def _files_below(folder: Path) -> Iterator[str]:
    """List the files below a folder, those of a folder before those of the folders in it.

    Without recursion, because a body may nest folders very deep. A folder that cannot be read
    raises ``OSError``: it must not count as empty.
    """
    waiting = [""]
    while waiting:
        start = waiting.pop()
        with os.scandir(f"{folder}/{start}") as found:
            entries = sorted(found, key=lambda entry: entry.name)
        # A link to a folder is neither a file nor a folder to look into.
        yield from (start + entry.name for entry in entries if not entry.is_dir())
        waiting += [
            f"{start}{entry.name}/"
            for entry in reversed(entries)
            if entry.is_dir(follow_symlinks=False)
        ]
