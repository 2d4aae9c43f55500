"""What a commit says about the execution that made it, in its LakeFS metadata.

Publication never *depends* on this record: HEAD and the attempt fence decide. The record lets an
execution recognise its own commit after a lost reply, lets people read a history, may veto a
relocation, and carries a result for adoption.

The first part of the record says who made the commit; it keeps its meaning in every version, and
everything that decides reads nothing else. The second part is for the history alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import BaseModel

from perago.masking import mask_data
from perago.protocol.identity import Attempt, Execution, LogicalTask
from perago.protocol.workspace import Commit
from perago.text import shorten_line

# Records without a version are of version 1 and have no second part.
RECORD_VERSION = 2
EXPECTED_HEAD = "perago.expected_head"
# On a merge: the staged commit. A publication without it was put in place of another.
STAGING_COMMIT = "perago.staging_commit"
# On the commit of a restoration, which is a person's and has no record: the tag that it restored.
RESTORED_TAG = "perago.restored_tag"
# On the branches of a restoration, which are deleted again: the commit that was repeated.
REPEATED_COMMIT = "perago.repeated_commit"
_PREFIX = "perago."
# Commit metadata is in every listing of commits. LakeFS has no limit of its own for it, the stores
# below it have: an item of DynamoDB takes 400 KB, key and value together.
_MAX_PARAMS_BYTES = 4096
_MOST_WARNINGS = 10
_LONGEST_WARNING = 300
# The second part of the record: what is damaged in it counts as absent.
_WHAT = frozenset(
    {
        "task_name",
        "branch",
        "prefix",
        "params",
        "code_fingerprint",
        "perago_version",
        "pre_guardrails",
        "post_guardrails",
        "warnings",
        "inputs",
    }
)
_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Record:
    """Who made a commit, from what, and with which result."""

    workflow_instance_id: str
    reference_name: str
    iteration: int
    task_id: str
    retry_count: int
    scheduled_ms: int
    claim: str
    execution_id: str
    ref: str
    params_hash: str
    result: str | None = None
    record_version: int = 1
    task_name: str | None = None
    branch: str | None = None
    prefix: str | None = None
    # The params as their model read them, as JSON; None where they are secret or too long.
    params: str | None = None
    code_fingerprint: str | None = None
    perago_version: str | None = None
    pre_guardrails: int | None = None
    post_guardrails: int | None = None
    # The warnings of guardrails, as a JSON list of bounded texts.
    warnings: str | None = None
    # At which commits the read-only inputs were, as JSON.
    inputs: str | None = None

    @classmethod
    def of(
        cls,
        execution: Execution,
        *,
        ref: str,
        params: dict[str, Any],
        result: str | None = None,
    ) -> Record:
        attempt = execution.attempt
        return cls(
            workflow_instance_id=attempt.workflow_instance_id,
            reference_name=attempt.reference_name,
            iteration=attempt.iteration,
            task_id=attempt.task_id,
            retry_count=attempt.retry_count,
            scheduled_ms=attempt.scheduled_ms,
            claim=execution.claim.token,
            execution_id=execution.id,
            ref=ref,
            params_hash=hash_params(params),
            result=result,
            record_version=RECORD_VERSION,
        )

    def with_warnings(self, warnings: Sequence[str]) -> Record:
        """This record with other warnings."""
        return replace(self, warnings=write_warnings(warnings))

    @property
    def logical(self) -> LogicalTask:
        return LogicalTask(self.workflow_instance_id, self.reference_name, self.iteration)

    @property
    def message(self) -> str:
        """A commit message for people; nothing reads it."""
        return f"{self.task_name}: {self.reference_name} of workflow {self.workflow_instance_id}"

    def metadata(self) -> dict[str, str]:
        """This record as LakeFS commit metadata, which holds strings only."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {_PREFIX + name: str(value) for name, value in fields.items() if value is not None}

    def is_of_later_attempt_than(self, attempt: Attempt) -> bool:
        """True when a later attempt of the same logical task made the commit.

        A rerun keeps task id and retry count, and is scheduled later: it counts.
        """
        if self.logical != attempt.logical:
            return False
        return (self.scheduled_ms, self.retry_count) > (attempt.scheduled_ms, attempt.retry_count)


def read_record(commit: Commit) -> Record | None:
    """The record of a commit, or None where a person or another tool made or damaged it.

    Damage to the second part, which decides nothing, does not make the commit a person's.
    """
    stored: dict[str, Any] = {
        key.removeprefix(_PREFIX): value
        for key, value in commit.metadata.items()
        if key.startswith(_PREFIX)
    }
    raw = {k: v for k, v in stored.items() if isinstance(v, str) or k not in _WHAT}
    if not all(isinstance(value, str) for value in raw.values()):
        return None
    try:
        return Record(
            workflow_instance_id=raw["workflow_instance_id"],
            reference_name=raw["reference_name"],
            iteration=_read_number(raw["iteration"]),
            task_id=raw["task_id"],
            retry_count=_read_number(raw["retry_count"]),
            scheduled_ms=_read_number(raw["scheduled_ms"]),
            claim=raw["claim"],
            execution_id=raw["execution_id"],
            ref=raw["ref"],
            params_hash=raw["params_hash"],
            result=raw.get("result"),
            record_version=_read_number(raw.get("record_version", "1")),
            task_name=raw.get("task_name"),
            branch=raw.get("branch"),
            prefix=raw.get("prefix"),
            params=raw.get("params"),
            code_fingerprint=raw.get("code_fingerprint"),
            perago_version=raw.get("perago_version"),
            pre_guardrails=_read_count(raw.get("pre_guardrails")),
            post_guardrails=_read_count(raw.get("post_guardrails")),
            warnings=raw.get("warnings"),
            inputs=raw.get("inputs"),
        )
    except (KeyError, ValueError):
        return None


def write_warnings(warnings: Sequence[str]) -> str | None:
    """Write the first warnings as JSON; metadata is part of every listing of commits."""
    if not warnings:
        return None
    shown = [shorten_line(text, _LONGEST_WARNING) for text in warnings[:_MOST_WARNINGS]]
    if len(warnings) > _MOST_WARNINGS:
        shown.append(f"… and {len(warnings) - _MOST_WARNINGS} more")
    return json.dumps(shown, ensure_ascii=False)


def _read_number(text: str) -> int:
    """Read a number as ``Record.metadata`` writes it; raises ``ValueError`` for anything else."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("not a number of a record")
    return int(text)


def _read_count(text: str | None) -> int | None:
    """Read a number of the second part; None where it is missing or damaged."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def hash_params(params: dict[str, Any]) -> str:
    """A hash of the params as given, independent of key order."""
    canonical = json.dumps(params, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def recordable(
    model: type[BaseModel], data: Any, *, max_bytes: int
) -> tuple[str | None, str | None]:
    """A result or params, as JSON data, as text to record; or None and why they cannot be."""
    if _has_secret_fields(model):
        return None, "the model has secret fields"
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    if len(text.encode()) > max_bytes:
        return None, f"it is larger than {max_bytes} bytes"
    return text, None


def recorded_params(params: BaseModel) -> str | None:
    """Params as text to record, or None where their hash is all that may or can be said.

    To be taken before the body runs, which may change its params. An author's model may raise
    when it is written; that must not end the attempt.
    """
    try:
        data = mask_data(params.model_dump(mode="json", by_alias=True))
        return recordable(type(params), data, max_bytes=_MAX_PARAMS_BYTES)[0]
    except Exception:  # noqa: BLE001  whatever an author's serializer raises
        return None


@cache
def _has_secret_fields(model: type[BaseModel]) -> bool:
    """Judged by the model, not the value, so that it does not change from run to run."""
    # Computed fields are in the schema of what is written only.
    schemas = (
        model.model_json_schema(mode="validation"),
        model.model_json_schema(mode="serialization"),
    )
    return '"format": "password"' in json.dumps(schemas)
