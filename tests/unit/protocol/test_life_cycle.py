"""Section 4: the order of the steps, what each failure gives, and what it leaves behind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perago.errors import (
    BackendUnavailableError,
    BodyError,
    GuardrailViolation,
    InputError,
    PostGuardrailViolation,
    PreGuardrailViolation,
    PublishFenceError,
    ResultError,
)
from perago.protocol.identity import Execution
from perago.protocol.job import Job, Policy
from perago.protocol.run import run_attempt
from support.memory_world import (
    REPOSITORY,
    Files,
    InMemoryWorld,
    Params,
    Result,
    completed,
    failed,
    raising,
    writes,
)


def test_a_writable_attempt_walks_the_steps_in_order(world: InMemoryWorld) -> None:
    completed(world.run(world.job(writes(b=b"2"))))
    assert world.phases() == [
        "validate",
        "download",
        "pre_guardrails",
        "body",
        "check_result",
        "post_guardrails",
        "first_fence",
        "diff",
        "stage",
        "second_fence",
        "publish",
    ]


def test_the_output_names_the_published_commit_and_the_result(world: InMemoryWorld) -> None:
    output = completed(world.run(world.job(writes(b=b"2"))))
    assert output == {
        "workspace": {
            "repository": REPOSITORY,
            "branch": "main",
            "ref_type": "commit",
            "ref": world.head.id,
        },
        "result": {"text": "done"},
    }
    assert world.head.first_parent == world.ref
    assert world.contents() == {"data/a": b"1", "data/b": b"2", "other/x": b"x"}
    assert world.staging_branches == []


def test_the_output_repeats_the_spelling_of_ref_type(world: InMemoryWorld) -> None:
    payload = world.payload()
    payload["workspace"]["refType"] = payload["workspace"].pop("ref_type")
    output = completed(world.run(world.job(writes(b=b"2")), world.deliver(payload)))
    assert output["workspace"]["refType"] == "commit"
    assert "ref_type" not in output["workspace"]


def test_a_wrong_input_fails_before_anything_is_made(world: InMemoryWorld) -> None:
    wrong: list[dict[str, Any]] = [
        {"params": {}},
        world.payload(ref="main"),
        {**world.payload(), "extra": 1},
    ]
    for payload in wrong:
        failed(world.run(world.job(), world.deliver(payload)), InputError)
    bad = {**world.payload(), "params": {"n": "secret-looking"}}
    reason = failed(world.run(world.job(), world.deliver(bad)), InputError)
    assert "params: n:" in reason
    assert "secret-looking" not in reason
    assert set(world.phases()) == {"validate"}


def test_a_commit_that_does_not_exist_is_an_input_error(world: InMemoryWorld) -> None:
    reason = failed(world.run(world.job(), world.deliver(world.payload(ref="0" * 64))), InputError)
    assert "no commit 000" in reason
    other = world.deliver(world.payload(repository="elsewhere"))
    failed(world.run(world.job(), other), InputError)


def test_an_outage_while_pinning_is_no_input_error(world: InMemoryWorld) -> None:
    with world.faults.outage("lake"):
        failed(world.run(world.job()), BackendUnavailableError)


def test_a_read_only_attempt_touches_nothing_but_the_input(world: InMemoryWorld) -> None:
    world.commit({"data/a": b"moved on"})
    world.commit({"data/a": b"and on"})
    head = world.head.id
    output = completed(world.run(world.job(writes(b=b"2"), read_only=True)))
    assert output["workspace"]["ref"] == world.ref
    assert world.head.id == head
    assert set(world.faults.calls) == {
        "attempts.poll",
        "lake.get_commit",
        "objects.list",
        "objects.read",
    }


def test_a_read_only_attempt_still_checks_guardrails_and_result(world: InMemoryWorld) -> None:
    post = raising(GuardrailViolation("no"))
    failed(world.run(world.job(read_only=True, post=post)), PostGuardrailViolation)
    failed(world.run(world.job(lambda _: 7, read_only=True)), ResultError)


def warns(job: Job, pre: str, post: str, *, fails: bool = False) -> Job:
    """A job whose guardrails warn, and then perhaps fail."""

    def check(data: Any, warn: Callable[[str], None], text: str) -> None:
        warn(text)
        if fails:
            raise GuardrailViolation("and no")

    assert job.workspace is not None
    use = replace(
        job.workspace, check_pre=partial(check, text=pre), check_post=partial(check, text=post)
    )
    return replace(job, workspace=use)


@pytest.mark.parametrize("kind", ["job", "spark_job"])
def test_warnings_of_guardrails_are_reported_and_recorded_and_stop_nothing(
    world: InMemoryWorld, kind: str
) -> None:
    write = {"job": writes(b=b"2"), "spark_job": lambda space: space.write("b")}[kind]
    completed(world.run(warns(getattr(world, kind)(write), "few rows", "ünique")))
    reported = [event for event in world.events if event.action == "guardrail_warned"]
    assert [(event.phase, event.details["message"]) for event in reported] == [
        ("pre_guardrails", "few rows"),
        ("post_guardrails", "ünique"),
    ]
    assert world.head.metadata["perago.warnings"] == '["few rows", "ünique"]'


def test_warnings_before_a_violation_are_reported(world: InMemoryWorld) -> None:
    outcome = world.run(warns(world.job(), "few rows", "", fails=True))
    failed(outcome, PreGuardrailViolation, "FAILED_WITH_TERMINAL_ERROR")
    assert "guardrail_warned" in {event.action for event in world.events}


def test_an_attempt_without_warnings_records_none(world: InMemoryWorld) -> None:
    completed(world.run(world.job(writes(b=b"2"))))
    assert "perago.warnings" not in world.head.metadata


def test_a_task_without_workspace_needs_params_only(world: InMemoryWorld) -> None:
    def run(payload: dict[str, Any], body: Callable[[Params], Any]) -> Any:
        delivery = world.deliver(payload)
        job = Job("task", Params, Result, body)
        return run_attempt(job, Execution(delivery.claim, "e"), delivery.payload, world.ports())

    done = run({"params": {"n": 3}}, lambda params: Result(text=str(params.n)))
    assert completed(done) == {"result": {"text": "3"}}
    failed(run(world.payload(), lambda _: Result()), InputError)
    failed(run({"params": {}}, lambda _: sys.exit(1)), BodyError)
    assert not [call for call in world.faults.calls if call.startswith(("lake", "objects"))]


def test_a_missing_hard_fence_fails_closed_before_the_body(world: InMemoryWorld) -> None:
    world.policy = Policy(publish_fence="hard")
    ran: list[Files] = []
    failed(world.run(world.job(ran.append)), PublishFenceError)
    assert ran == []
    completed(world.run(world.job(read_only=True)))


def test_the_body_finds_exactly_the_projection(world: InMemoryWorld) -> None:
    world.ref = world.commit({"data-archive/z": b"z", "data/sub/b": b"2"}).id
    found: list[Files] = []
    completed(world.run(world.job(lambda files: found.append(dict(files)))))
    assert found == [{"a": b"1", "sub/b": b"2"}]


def test_objects_outside_the_prefix_are_never_touched(world: InMemoryWorld) -> None:
    completed(world.run(world.job(lambda files: files.clear())))
    assert world.contents() == {"other/x": b"x"}


def test_the_attempt_directory_is_closed_whatever_happens(world: InMemoryWorld) -> None:
    seen: list[Path] = []
    world.run(world.job(raising(ValueError()), pre=seen.append))
    with pytest.raises(KeyError):
        world.workspaces.files_at(seen[0])
