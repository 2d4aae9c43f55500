"""The life cycle of a file task, from top to bottom: steps 1 to 10 of the protocol.

Each step takes what the step before produced: ``Pinned`` → ``Executed`` → ``StagedWorkspace`` →
``Published``. Reporting (11) is the worker's.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from perago.errors import PostGuardrailViolation, PreGuardrailViolation
from perago.protocol.ports import AttemptDirectory
from perago.protocol.publish import Published
from perago.protocol.record import Record
from perago.protocol.steps import Pinned, Steps, call_body, check_guardrails, check_result


def run_file_task(steps: Steps, payload: dict[str, Any]) -> dict[str, Any]:
    """Download, run the body on a folder, and publish what it made of it."""
    phases, spec, job = steps.phases, steps.spec, steps.job
    with phases("validate"):
        pinned = steps.pin(payload)
    if (adopted := steps.adopt(pinned)) is not None:
        return adopted
    if steps.storage.transfers_outlive_worker and not spec.read_only:
        _end_predecessors(steps, pinned)
    with steps.storage.workspaces.open(steps.execution) as directory:
        with phases("download") as details:
            inputs = _download(directory, pinned, spec.prefix, details)
        with phases("pre_guardrails"):
            warnings = check_guardrails(
                spec.check_pre, directory.data, PreGuardrailViolation, phases
            )
        with phases("body"):
            arguments = (directory.data, pinned.params, *([inputs] if inputs else []))
            value = call_body(lambda: job.body(*arguments))
        with phases("check_result"):
            executed = check_result(job, value, phases)
            output = steps.output(pinned, executed, pinned.workspace.ref)
        with phases("post_guardrails"):
            warnings += check_guardrails(
                spec.check_post, directory.data, PostGuardrailViolation, phases
            )
        if spec.read_only:
            return output
        record = steps.record(pinned, executed, warnings)
        published = _publish(steps, pinned, record, directory)
    return steps.output(pinned, executed, published.ref)


def _end_predecessors(steps: Steps, pinned: Pinned) -> None:
    """Have Spark end what it still moves for a dead predecessor, before it moves anything for us.

    At the publication it would be late, and connecting to Spark would take time of the lease.
    """
    with steps.phases("withdraw"):
        steps.fence.check()
        steps.licences.withdraw_others(pinned.workspace.repository)


def _download(
    directory: AttemptDirectory, pinned: Pinned, prefix: str, details: dict[str, Any]
) -> dict[str, Path]:
    """Fetch the workspace and the inputs; the folders of the inputs, by name."""
    counts = Counter(directory.fetch(pinned.workspace, prefix))
    folders: dict[str, Path] = {}
    for name, given in pinned.inputs.items():
        folders[name], moved = directory.fetch_input(name, given)
        counts.update(moved)
    details.update(counts)
    return folders


def _publish(
    steps: Steps, pinned: Pinned, record: Record, directory: AttemptDirectory
) -> Published:
    """The writable path: fence, stage, fence, publish."""
    phases = steps.phases
    with phases("first_fence"):
        lease = steps.fence.check()
    with phases("diff") as details:
        changes = directory.changes()
        details.update(changes.summary())
    with steps.licence(pinned) as licence:
        if not changes:
            return steps.publish(pinned, licence, None, record, lease)
        with phases("stage") as details:
            details.update(changes.summary())
            licence.create()
            details.update(directory.stage(changes, licence.branch))
            staged = steps.commit(licence.branch, record)
        with phases("second_fence"):
            lease = steps.fence.check()
        return steps.publish(pinned, licence, staged, record, lease)
