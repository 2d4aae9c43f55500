"""What travels between steps: workspace references, staged references and LakeFS commits."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from perago.errors import InputError
from perago.names import COMMIT_ID
from perago.protocol.json_value import MAX_DEPTH, is_too_deep

_COMMIT_ID = re.compile(COMMIT_ID)


class WorkspaceInput(BaseModel):
    """The versioned workspace an attempt starts from, and the branch it may move."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    repository: str
    branch: str
    ref_type: Literal["commit"]
    ref: str
    # TypeScript nodes of the same workflows write refType; the output repeats what came in.
    spelling: Literal["ref_type", "refType"] = "ref_type"

    @model_validator(mode="before")
    @classmethod
    def _accept_ref_type_alias(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "refType" not in value:
            return value
        if "ref_type" in value:
            raise ValueError("give ref_type or refType, not both")
        rest = {key: item for key, item in value.items() if key != "refType"}
        return {**rest, "ref_type": value["refType"], "spelling": "refType"}

    @model_validator(mode="after")
    def _ref_is_a_full_commit_id(self) -> WorkspaceInput:
        if not _COMMIT_ID.fullmatch(self.ref):
            raise ValueError(f"ref must be a full commit id (64 hex digits), not {self.ref!r}")
        if not self.repository or not self.branch:
            raise ValueError("repository and branch must not be empty")
        return self

    def payload(self, ref: str) -> dict[str, str]:
        """The workspace part of an output: the same workspace at ``ref``."""
        return {
            "repository": self.repository,
            "branch": self.branch,
            self.spelling: self.ref_type,
            "ref": ref,
        }


@dataclass(frozen=True, slots=True)
class TaskInput:
    """A Conductor input whose shape is right; params are still plain data."""

    workspace: WorkspaceInput | None
    params: dict[str, Any]
    inputs: Mapping[str, WorkspaceInput] = field(default_factory=dict)

    def places(self) -> Iterator[tuple[str, WorkspaceInput]]:
        """Every workspace of the input, with where in the input it is."""
        if self.workspace is not None:
            yield "workspace", self.workspace
        yield from ((f"inputs.{name}", it) for name, it in self.inputs.items())


@dataclass(frozen=True, slots=True)
class NamedInput:
    """A read-only workspace beside the one of the task, and the folder of it that the task gets."""

    workspace: WorkspaceInput
    prefix: str


def write_inputs(inputs: Mapping[str, NamedInput]) -> str | None:
    """Write as JSON, for the record, at which commits the inputs were; None without inputs."""
    if not inputs:
        return None
    places = {
        name: {"repository": it.repository, "branch": it.branch, "ref": it.ref}
        for name, it in sorted((name, it.workspace) for name, it in inputs.items())
    }
    return json.dumps(places)


def parse_input(
    payload: dict[str, Any], *, with_workspace: bool, inputs: Collection[str] = ()
) -> TaskInput:
    """Check the top level of a Conductor input, its workspace and its inputs of these names."""
    if is_too_deep(payload):
        raise InputError(f"the input is nested more than {MAX_DEPTH} levels deep")
    wanted = {"workspace", "params"} if with_workspace else {"params"}
    _check_keys(payload, wanted | {"inputs"} if inputs else wanted, "the input")
    if not isinstance(payload["params"], dict):
        raise InputError(f"params must be an object, not {type(payload['params']).__name__}")
    if not with_workspace:
        return TaskInput(None, payload["params"])
    workspace = _parse_workspace(payload["workspace"], "workspace")
    if not inputs:
        return TaskInput(workspace, payload["params"])
    given = payload["inputs"]
    if not isinstance(given, dict):
        raise InputError(f"inputs must be an object, not {type(given).__name__}")
    _check_keys(given, set(inputs), "inputs")
    named = {name: _parse_workspace(given[name], f"inputs.{name}") for name in inputs}
    return TaskInput(workspace, payload["params"], named)


def _check_keys(given: dict[str, Any], wanted: set[str], what: str) -> None:
    if set(given) == wanted:
        return
    missing, extra = sorted(wanted - set(given)), sorted(set(given) - wanted)
    parts = [f"missing {', '.join(missing)}"] if missing else []
    parts += [f"unexpected {', '.join(map(repr, extra))}"] if extra else []
    raise InputError(f"{what} must have exactly {sorted(wanted)}: {'; '.join(parts)}")


def _parse_workspace(raw: Any, where: str) -> WorkspaceInput:
    if isinstance(raw, dict) and "spelling" in raw:
        raise InputError(f"{where}: unexpected 'spelling'")
    try:
        return WorkspaceInput.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{where}: {describe_validation(error)}") from None


def assert_allowed(
    workspace: WorkspaceInput, patterns: Sequence[str], where: str = "workspace"
) -> None:
    """Raise ``InputError`` unless a ``repository/branch`` pattern matches the workspace."""
    for pattern in patterns:
        repository, _, branch = pattern.partition("/")
        if fnmatchcase(workspace.repository, repository) and fnmatchcase(workspace.branch, branch):
            return
    raise InputError(
        f"{where}: this worker does not work on {workspace.repository!r}, branch "
        f"{workspace.branch!r}",
        hint="Correct the workflow's input, or add the workspace to PERAGO_ALLOWED_WORKSPACES of "
        "this worker.",
    )


def allows_every_branch(repository: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern allows every branch of a repository, and so every commit in it."""
    split = (pattern.partition("/") for pattern in patterns)
    return any(
        branch.strip("*") == "" and branch and fnmatchcase(repository, it)
        for it, _, branch in split
    )


def no_branch(space: WorkspaceInput, where: str) -> InputError:
    """Build the error for a branch that is not there."""
    return InputError(f"{where}: no branch {space.branch!r} in repository {space.repository!r}")


def not_on_branch(space: WorkspaceInput, where: str) -> InputError:
    """Build the error for a commit of a branch that the worker may not read."""
    return InputError(
        f"{where}: commit {space.ref} is not on branch {space.branch!r} of "
        f"{space.repository!r}, and this worker reads only branches that it is allowed",
        hint="Give the HEAD of the branch or a commit before it, or name the branch that "
        "has the commit. To allow every commit of the repository, add "
        f"{space.repository}/* to PERAGO_ALLOWED_WORKSPACES of this worker.",
    )


def describe_validation(error: ValidationError, known: Sequence[str] = ()) -> str:
    """One line per problem, without echoing the values, which may be private.

    ``known`` are the keys that are there to be given, for the one who misspelt one.
    """
    found = error.errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(_problem(item, known) for item in found)


def _problem(item: Mapping[str, Any], known: Sequence[str]) -> str:
    place = ".".join(str(part) for part in item["loc"])
    if item["type"] == "value_error":  # a validator's own sentence
        sentence = str(item["msg"]).removeprefix("Value error, ")
        return f"{place}: {sentence}" if place else sentence
    return f"{place or 'value'}: {_described(item, known)}"


def _described(item: Mapping[str, Any], known: Sequence[str]) -> str:
    if item["type"] != "extra_forbidden":
        return str(item["msg"])
    listed = f"; known are {', '.join(known)}" if known and len(item["loc"]) == 1 else ""
    return f"there is no such key{listed}"


@dataclass(frozen=True, slots=True)
class StagingBranch:
    """The branch one execution writes to. Always carried whole."""

    repository: str
    branch: str


@dataclass(frozen=True, slots=True)
class StagedWorkspace:
    """A staging branch whose content is committed."""

    repository: str
    branch: str
    commit: str


@dataclass(frozen=True, slots=True)
class BranchHead:
    """A branch as a listing shows it."""

    name: str
    commit: str


@dataclass(frozen=True, slots=True)
class Commit:
    """A LakeFS commit, as far as the protocol looks at it."""

    id: str
    parents: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    # For people: who made it, what they said, and when.
    committer: str = ""
    message: str = ""
    created: datetime | None = None

    @property
    def first_parent(self) -> str | None:
        return self.parents[0] if self.parents else None
