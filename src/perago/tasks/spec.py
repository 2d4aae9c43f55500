"""Describe the part of a repository that a task works on, and its guardrails."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perago.names import ACTIONS_FOLDER, listing_prefix
from perago.tasks.data import DataGuardrail, RequireSchema
from perago.tasks.ddl import parse_columns
from perago.tasks.guardrails import Guardrail, guardrail_problem

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# The name of an input is a key of the payload and the name of a folder.
_INPUT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)


def normalize_prefix(prefix: str) -> str:
    """Remove one slash at either end."""
    return prefix.removeprefix("/").removesuffix("/")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A read-only input of a task beside its workspace, from any branch of any repository.

    The payload says at which commit. With ``repository``, it must be in that one; a local run
    takes the HEAD of ``branch``. The task gets the objects below ``prefix``.
    """

    repository: str | None = None
    prefix: str = "/"
    branch: str = "main"

    @property
    def normal_prefix(self) -> str:
        """The prefix without slashes at its ends; empty for the whole repository."""
        return normalize_prefix(self.prefix)

    def problems(self) -> Iterator[str]:
        """Yield every problem of this spec, with what to write instead."""
        for name in ("repository", "branch"):
            value = getattr(self, name)
            optional = value is None and name == "repository"
            if not optional and (not isinstance(value, str) or not value):
                yield f"{name} must be a name, not {value!r}"
        yield from _prefix_problems(self.prefix, "InputSpec")


@dataclass(frozen=True, slots=True)
class WorkspaceSpec:
    """The projection a task works on.

    ``prefix`` is a folder of the repository (``/``: the whole repository); the task gets the
    objects below it, by paths relative to it. A ``read_only`` task never publishes. ``inputs`` are
    read-only workspaces beside it, by name.
    """

    prefix: str = "/"
    pre: Sequence[Guardrail] = ()
    post: Sequence[Guardrail] = ()
    read_only: bool = False
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)

    @property
    def normal_prefix(self) -> str:
        """The prefix without slashes at its ends; empty for the whole repository."""
        return normalize_prefix(self.prefix)

    def problems(self) -> Iterator[str]:
        """Yield every problem of this spec, with what to write instead."""
        yield from _prefix_problems(self.prefix)
        read_only: object = self.read_only
        if not isinstance(read_only, bool):
            yield f"WorkspaceSpec.read_only must be True or False, not {read_only!r}"
        for side in ("pre", "post"):
            yield from _guardrail_problems(side, getattr(self, side))
        yield from _inputs_problems(self.inputs)

    def file_problems(self) -> Iterator[str]:
        """Yield the problems of this spec on a file task, which reads data without Spark."""
        for side in ("pre", "post"):
            guardrails = getattr(self, side)
            for guardrail in guardrails if isinstance(guardrails, Sequence) else ():
                if isinstance(guardrail, DataGuardrail) and (problem := _file_problem(guardrail)):
                    yield f"WorkspaceSpec.{side}: {problem}"


def _file_problem(guardrail: DataGuardrail) -> str | None:
    from perago.tasks.file_table import file_table_problem  # most tasks do not need SQLite

    if guardrail.problem():
        return None  # which is reported for every kind of task
    if problem := file_table_problem(guardrail.table):
        return problem
    if isinstance(guardrail, RequireSchema):
        try:
            parse_columns(guardrail.schema)
        except ValueError as error:
            return f"{guardrail.path!r}: the schema cannot be read: {error}"
    return None


def _inputs_problems(inputs: object) -> Iterator[str]:
    if not isinstance(inputs, Mapping):
        yield f"WorkspaceSpec.inputs must be a dict of InputSpec(…) by name, not {inputs!r}"
        return
    for name, spec in inputs.items():
        if not isinstance(name, str) or not _INPUT_NAME.fullmatch(name):
            yield (
                f"WorkspaceSpec.inputs: {name!r}: write a name of letters, digits, '_' and '-', "
                "beginning with a letter"
            )
        elif not isinstance(spec, InputSpec):
            yield f"WorkspaceSpec.inputs: {name!r} must be InputSpec(…), not {spec!r}"
        else:
            yield from (f"WorkspaceSpec.inputs: {name!r}: {it}" for it in spec.problems())


def _prefix_problems(prefix: object, whose: str = "WorkspaceSpec") -> Iterator[str]:
    if not isinstance(prefix, str):
        yield f"{whose}.prefix must be a string, not {prefix!r}"
        return
    if prefix == "":
        yield f"{whose}.prefix must not be empty: write '/' for the whole repository"
        return
    normal = normalize_prefix(prefix)
    segments = normal.split("/") if normal else []
    bad = any(segment in {"", ".", ".."} for segment in segments)
    if bad or "//" in prefix or "\\" in prefix or _CONTROL.search(prefix):
        yield (
            f"{whose}.prefix {prefix!r}: write a folder like 'audio/render', "
            "without '.', '..', '//', backslashes or control characters"
        )
    if listing_prefix(normal).startswith(ACTIONS_FOLDER):
        yield f"{whose}.prefix: {ACTIONS_FOLDER} is never part of a workspace"


def _guardrail_problems(side: str, guardrails: object) -> Iterator[str]:
    if isinstance(guardrails, str) or not isinstance(guardrails, Sequence):
        yield f"WorkspaceSpec.{side} must be a list of guardrails, not {guardrails!r}"
        return
    for guardrail in guardrails:
        if problem := guardrail_problem(guardrail):
            yield f"WorkspaceSpec.{side}: {problem}"
