"""What the life cycle needs to know about a task, a worker's policy and the outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from perago.errors import InputError
from perago.protocol.events import EventSink
from perago.protocol.ports import Attempts, Clock, Lake, Objects, SparkExecutions, Workspaces
from perago.protocol.workspace import NamedInput, WorkspaceInput

Replacement = Literal["provenance", "head-state", "off"]
Check = Callable[[Any, Callable[[str], None]], None]

DEFAULT_MERGE_TIMEOUT_SECONDS = 60.0
# A merge whose HEAD is the merge base takes milliseconds; LakeFS retries its write up to ten times.
DEFAULT_LANDING_SECONDS = 5.0
RELOCATE_TIMEOUT_SECONDS = 30.0
# The small requests of publishing, each with a time limit of its own: reads, tags, the fence, the
# withdrawal of licences, the read-back; and the removal of the directory.
_SMALL_REQUESTS_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class InputUse:
    """Which folder of a read-only input a task gets, and where the input must be, if anywhere."""

    prefix: str
    repository: str | None = None

    def at(self, workspace: WorkspaceInput, where: str) -> NamedInput:
        """The input at the commit that the payload names; raises ``InputError``."""
        if self.repository is not None and workspace.repository != self.repository:
            raise InputError(
                f"{where}: the task reads repository {self.repository!r}, "
                f"not {workspace.repository!r}"
            )
        return NamedInput(workspace, self.prefix)


@dataclass(frozen=True, slots=True)
class WorkspaceUse:
    """How a task uses its workspace. The checks raise ``GuardrailViolation``.

    They get what the body gets, a folder (``Path``) or a Spark workspace, and a function that
    takes each warning.
    """

    prefix: str
    read_only: bool
    check_pre: Check
    check_post: Check
    kind: Literal["file", "spark"] = "file"
    inputs: Mapping[str, InputUse] = field(default_factory=dict)
    # How many guardrails the checks run.
    pre_guardrails: int = 0
    post_guardrails: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A task, as the life cycle sees it. Without ``workspace`` the body takes params only."""

    name: str
    params_model: type[BaseModel]
    result_model: type[BaseModel]
    body: Callable[..., Any]
    workspace: WorkspaceUse | None = None
    recovery: Literal["replace", "adopt"] = "replace"
    merge_timeout_seconds: float = DEFAULT_MERGE_TIMEOUT_SECONDS
    # The time that a merge may take in LakeFS once it has resolved its source.
    landing_seconds: float = DEFAULT_LANDING_SECONDS
    # For the record on commits: which code this is; None where it cannot be said.
    code_fingerprint: str | None = None
    perago_version: str | None = None

    @property
    def publish_window_seconds(self) -> float:
        """The time from the fence that lets an execution publish until its outcome.

        Requests have time limits of their own; this is for an execution that hangs all the same.
        Requests of withdrawn licences are waited for before the fence, and a lost reply after it.
        """
        moving = max(self.merge_timeout_seconds, RELOCATE_TIMEOUT_SECONDS)
        return moving + 2 * self.landing_seconds + _SMALL_REQUESTS_SECONDS

    @property
    def param_keys(self) -> list[str]:
        """The keys that params may have, as a workflow writes them."""
        fields = self.params_model.model_fields.items()
        return [
            item.validation_alias if isinstance(item.validation_alias, str) else name
            for name, item in fields
        ]

    def parse_params(self, params: dict[str, Any]) -> BaseModel:
        """Validate params; raises ``ValidationError``, also for a key that no model knows.

        Such a key is most often misspelt, and pydantic would ignore it. A model that sets ``extra``
        decides for itself; what is nested in params is then left to the models, too. So it is where
        a model has computed fields, which a result holds that another task is given as params.
        """
        model = self.params_model
        # A model may name a class that was defined after it.
        model.model_rebuild()
        if not _takes_more(model.__pydantic_core_schema__):
            return model.model_validate(params, extra="forbid")
        found = model.model_validate(params)
        if "extra" not in model.model_config:
            _refuse_unknown_keys(model, params)
        return found

    @property
    def kind(self) -> Literal["file", "spark", "plain"]:
        return "plain" if self.workspace is None else self.workspace.kind


def _takes_more(schema: Any) -> bool:
    """Whether a model, or one within it, may be given keys that are not among its fields."""
    if isinstance(schema, dict):
        marks = (schema.get(key) for key in ("extra_fields_behavior", "extra_behavior"))
        takes = any(marks) or bool(schema.get("computed_fields"))
        return takes or any(map(_takes_more, schema.values()))
    return isinstance(schema, list | tuple) and any(map(_takes_more, schema))


def _refuse_unknown_keys(model: type[BaseModel], params: dict[str, Any]) -> None:
    """Raise for unknown keys at the top of valid params."""
    try:
        model.model_validate(params, extra="forbid")
    except ValidationError as error:
        places = [item["loc"] for item in error.errors() if len(item["loc"]) == 1]
        unknown = [place for place in places if place[0] not in model.model_computed_fields]
        if unknown:
            raise ValidationError.from_exception_data(
                model.__name__,
                [{"type": "extra_forbidden", "loc": place, "input": None} for place in unknown],
            ) from None


@dataclass(frozen=True, slots=True)
class Policy:
    """A worker's choices, from its configuration."""

    publish_fence: Literal["soft", "hard"] = "soft"
    replacement: Replacement = "provenance"
    # Patterns of repository/branch: the workspaces that a workflow may ask for.
    allowed_workspaces: tuple[str, ...] = ("*/*",)
    # Conductor's default limit for a task output is 3 MiB.
    max_output_bytes: int = 3_000_000
    # A recorded result lives in commit metadata, which every listing of commits carries.
    max_recorded_result_bytes: int = 16_384


@dataclass(frozen=True, slots=True)
class SparkPorts:
    """The ports that only Spark tasks use."""

    executions: SparkExecutions
    objects: Objects


@dataclass(frozen=True, slots=True)
class StoragePorts:
    """The ports that tasks with a workspace use."""

    lake: Lake
    workspaces: Workspaces
    # None where no task of the worker is a Spark task.
    spark: SparkPorts | None = None
    # Whether a Spark that is not the worker's own moves the workspaces of file tasks, so that it
    # goes on when the worker dies.
    transfers_outlive_worker: bool = False


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything outside that one attempt touches."""

    attempts: Attempts
    clock: Clock
    events: EventSink
    policy: Policy = field(default_factory=Policy)
    # None where no task of the worker has a workspace.
    storage: StoragePorts | None = None
