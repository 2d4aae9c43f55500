"""What a commit says about the execution that made it, in its LakeFS metadata.

Publication never *depends* on this record: HEAD and the attempt fence decide. The record lets an
execution recognise its own commit after a lost reply, lets people read a history, may veto a
relocation, and carries a result for adoption.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perago.protocol.identity import Attempt, Execution, LogicalTask
from perago.protocol.workspace import Commit, NamedInput, write_inputs
from perago.text import shorten_line

EXPECTED_HEAD = "perago.expected_head"
_PREFIX = "perago."
_MOST_WARNINGS = 10
_LONGEST_WARNING = 300
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
        warnings: Sequence[str] = (),
        inputs: Mapping[str, NamedInput] | None = None,
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
            warnings=_write_warnings(warnings),
            inputs=write_inputs(inputs or {}),
        )

    def with_warnings(self, warnings: Sequence[str]) -> Record:
        """This record with other warnings."""
        return replace(self, warnings=_write_warnings(warnings))

    @property
    def logical(self) -> LogicalTask:
        return LogicalTask(self.workflow_instance_id, self.reference_name, self.iteration)

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
    """The record of a commit, or None where a person or another tool made or damaged it."""
    raw = {
        key.removeprefix(_PREFIX): value
        for key, value in commit.metadata.items()
        if key.startswith(_PREFIX)
    }
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
            warnings=raw.get("warnings"),
            inputs=raw.get("inputs"),
        )
    except (KeyError, ValueError):
        return None


def _write_warnings(warnings: Sequence[str]) -> str | None:
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


def hash_params(params: dict[str, Any]) -> str:
    """A hash of the params as given, independent of key order."""
    canonical = json.dumps(params, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
