"""Adoption: a retry takes over what a dead predecessor published, instead of doing it again.

Everything must fit: the place (one commit past the input), the logical task, the input, the
params, the chain of retries and the claim. Anything less is no adoption, and the attempt runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from perago.errors import NotFoundError
from perago.protocol.identity import Attempt
from perago.protocol.ports import Attempts, AttemptSnapshot, Lake
from perago.protocol.record import Record, hash_params, read_record
from perago.protocol.workspace import Commit, NamedInput, WorkspaceInput, write_inputs

_LONGEST_CHAIN = 100


def find_adoptable(
    *,
    lake: Lake,
    attempts: Attempts,
    attempt: Attempt,
    workspace: WorkspaceInput,
    params: dict[str, Any],
    inputs: Mapping[str, NamedInput],
    result_model: type[BaseModel],
) -> tuple[Commit, BaseModel] | None:
    """The published commit and result of a dead predecessor, if they fit in every respect."""
    if attempt.retried_task_id is None:
        return None
    head = lake.get_head(workspace.repository, workspace.branch)
    record = read_record(head)
    if record is None or record.result is None or head.first_parent != workspace.ref:
        return None
    fits = (
        record.logical == attempt.logical
        and record.ref == workspace.ref
        and record.params_hash == hash_params(params)
        and record.inputs == write_inputs(inputs)
    )
    if not fits or not _published_by_predecessor(record, attempts, attempt):
        return None
    # A rerun of a retry keeps its place in the chain. A person asks for it to do the work again,
    # and only the workflow shows that it was asked for.
    if attempts.has_ended_before(attempt.workflow_instance_id):
        return None
    try:
        return head, result_model.model_validate_json(record.result)
    except ValidationError:  # the model changed since
        return None


def _published_by_predecessor(record: Record, attempts: Attempts, attempt: Attempt) -> bool:
    """Walk back the retries; the recorded claim must be the last one Conductor gave out there.

    A rerun resets a task under the same id and gives it a new claim, which this notices.
    """
    task_id = attempt.retried_task_id
    for _ in range(_LONGEST_CHAIN):
        if task_id is None:
            return False
        try:
            snapshot: AttemptSnapshot = attempts.read(task_id)
        except NotFoundError:
            return False
        if task_id == record.task_id:
            return (snapshot.worker_id, snapshot.retry_count) == (record.claim, record.retry_count)
        task_id = snapshot.retried_task_id
    return False
