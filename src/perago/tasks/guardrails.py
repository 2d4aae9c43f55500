"""Check a workspace with guardrails before and after the body.

Built-in guardrails check a list of relative paths, so that they mean the same for a folder and for
a LakeFS listing. Those of :mod:`perago.tasks.data` check data with Spark. An author can write
a callable that takes the workspace and raises :class:`~perago.errors.GuardrailViolation`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from perago.errors import GuardrailViolation
from perago.tasks.globs import compile_glob, glob_problem, relative_path_problem
from perago.tasks.spark import SparkWorkspace

_SHOWN = 5
# The modules of the functions that build guardrails; the functions are no guardrails.
_FACTORIES = frozenset({__name__, "perago.tasks.data"})


@runtime_checkable
class ListingGuardrail(Protocol):
    """A guardrail that checks paths only."""

    def check(self, paths: Sequence[str]) -> None: ...
    def problem(self) -> str | None: ...


@runtime_checkable
class DataGuardrail(Protocol):
    """A guardrail that reads data with Spark."""

    def check_data(self, workspace: SparkWorkspace) -> None: ...
    def problem(self) -> str | None: ...


Guardrail = ListingGuardrail | DataGuardrail | Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class RequireFile:
    """Requires a file."""

    path: str

    def check(self, paths: Sequence[str]) -> None:
        if self.path not in paths:
            raise GuardrailViolation(f"required file is missing: {self.path}")

    def problem(self) -> str | None:
        return _plain_problem(self.path)


@dataclass(frozen=True, slots=True)
class RequireDir:
    """Requires a folder with at least one file; empty folders are never published."""

    path: str

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

    def check(self, paths: Sequence[str]) -> None:
        matches = compile_glob(self.pattern).fullmatch
        found = [path for path in paths if matches(path)]
        if len(found) < self.min_count:
            raise GuardrailViolation(
                f"{self.pattern!r} matches {len(found)} files, at least {self.min_count} required"
            )
        if self.max_count is not None and len(found) > self.max_count:
            shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
            raise GuardrailViolation(
                f"{self.pattern!r} matches {len(found)} files, at most {self.max_count} allowed: "
                f"{shown}"
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


def require_file(path: str) -> RequireFile:
    """Require the file at ``path``."""
    return RequireFile(path)


def require_dir(path: str) -> RequireDir:
    """Require the folder at ``path`` with at least one file."""
    return RequireDir(path)


def require_glob(pattern: str, min_count: int = 1, max_count: int | None = None) -> CountGlob:
    """Require between ``min_count`` and ``max_count`` files that match ``pattern``."""
    return CountGlob(pattern, min_count, max_count)


def forbid_glob(pattern: str) -> CountGlob:
    """Forbid files that match ``pattern``."""
    return CountGlob(pattern, 0, 0)


def guardrail_problem(guardrail: object) -> str | None:
    """Explain what is wrong with one entry of ``pre`` or ``post``; None if nothing is."""
    if getattr(guardrail, "__module__", "") in _FACTORIES and inspect.isfunction(guardrail):
        # As a callable with one argument, it would accept every workspace.
        name = guardrail.__name__
        return f"{name} needs its argument: write {name}('path')"
    if isinstance(guardrail, ListingGuardrail | DataGuardrail):
        return guardrail.problem()
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


def check_folder(guardrails: Sequence[Guardrail], workspace: Path) -> None:
    """Run guardrails on a local workspace; raises at the first violation."""
    paths: list[str] | None = None
    for guardrail in guardrails:
        if isinstance(guardrail, ListingGuardrail):
            paths = list(_files_below(workspace)) if paths is None else paths
            guardrail.check(paths)
        elif isinstance(guardrail, DataGuardrail):
            raise TypeError(f"{guardrail!r} needs Spark; the decorator refuses it on a file task")
        else:
            guardrail(workspace)


def check_spark(guardrails: Sequence[Guardrail], workspace: SparkWorkspace) -> None:
    """Run guardrails on what a Spark workspace reads; raises at the first violation."""
    for guardrail in guardrails:
        if isinstance(guardrail, ListingGuardrail):
            guardrail.check(workspace.paths())
        elif isinstance(guardrail, DataGuardrail):
            guardrail.check_data(workspace)
        else:
            guardrail(workspace)


def _files_below(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        relative = Path(parent).relative_to(folder).as_posix()
        start = "" if relative == "." else relative + "/"
        yield from (start + name for name in sorted(names))


def _raise(error: OSError) -> None:
    """Raise for a folder that cannot be read, which must not count as empty."""
    raise error
