"""Graphs, timelines and histograms: where things are drawn, and how long they may get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perago.conductor.inspection import TaskView, WorkflowView
from perago.dashboard import timeline
from perago.dashboard.publish_times import WIDTH, build_histograms
from perago.dashboard.rendering import show_seconds, show_size
from perago.dashboard.steps import BOX_HEIGHT, BOX_WIDTH, MOST_BOXES, Box, StepGraph, draw
from perago.errors import BackendError
from perago.observability.metrics import WorkerMetrics
from perago.observability.running import PhaseView, RunningView
from perago.operations.attempts import Phase
from perago.protocol.events import PhaseEvent
from perago.protocol.identity import LogicalTask
from support.dashboard_world import FORKED, NOW
from support.workflows import loop, step, switch


def workflow(tasks: Any, *attempts: TaskView) -> WorkflowView:
    return WorkflowView("w", "name", "RUNNING", NOW, None, None, attempts, {"tasks": tasks})


def attempt(reference: str, status: str = "COMPLETED", iteration: int = 0) -> TaskView:
    return TaskView(
        task_id=f"{reference}-{status}",
        task_name=reference,
        status=status,
        logical=LogicalTask("w", reference, iteration),
        workflow_name="name",
        retry_count=0,
        retried_task_id=None,
        claim=None,
        reason=None,
        scheduled=None,
        started=None,
        ended=None,
        input={},
        output={},
    )


def named(graph: StepGraph) -> dict[str, Box]:
    return {box.reference: box for box in graph.boxes}


def test_steps_follow_each_other_from_top_to_bottom() -> None:
    graph = draw(workflow([step("a"), step("b")], attempt("a", "FAILED"), attempt("a")))
    boxes = named(graph)
    assert boxes["a"].bottom < boxes["b"].y
    assert (boxes["a"].status, boxes["b"].status) == ("COMPLETED", None)
    assert len(boxes["a"].attempts) == 2
    assert len(graph.lines) == 1


def test_branches_of_a_fork_are_side_by_side_and_lead_to_the_join() -> None:
    graph = draw(workflow(FORKED["tasks"]))
    boxes = named(graph)
    assert boxes["clean_orders"].y == boxes["clean_people"].y
    assert boxes["clean_orders"].x + BOX_WIDTH < boxes["clean_people"].x
    assert boxes["join"].y > boxes["step"].bottom
    to_join = [
        it for it in graph.lines if (it.x2, it.y2) == (boxes["join"].center, boxes["join"].y)
    ]
    assert len(to_join) == 2
    for box in graph.boxes:
        assert box.x >= 0
        assert box.x + BOX_WIDTH <= graph.width
        assert box.y + BOX_HEIGHT <= graph.height


def test_cases_of_a_switch_and_the_body_of_a_loop_are_drawn() -> None:
    choice = switch({"x": [step("x")]}, [step("d")], reference="s")
    again = loop(step("again"), reference="l")
    graph = draw(workflow([choice, again], attempt("again__2", iteration=2)))
    assert set(named(graph)) == {"s", "x", "d", "l", "again"}
    assert named(graph)["again"].status == "COMPLETED"


@pytest.mark.parametrize("tasks", [None, [], "text", [1, None], {"a": 1}])
def test_without_a_readable_definition_the_attempts_are_drawn(tasks: Any) -> None:
    assert list(named(draw(workflow(tasks, attempt("only"))))) == ["only"]
    assert draw(workflow(tasks)).boxes == ()


def test_a_huge_and_a_deep_definition_are_cut() -> None:
    graph = draw(workflow([step(f"s{n}") for n in range(MOST_BOXES + 50)]))
    assert (len(graph.boxes), graph.cut) == (MOST_BOXES, True)
    nested: list[Any] = [step("bottom")]
    for number in range(300):
        nested = [loop(*nested, reference=f"loop{number}")]
    assert "bottom" not in named(draw(workflow(nested)))


def test_a_timeline_is_as_long_as_its_bar_and_shows_the_shortest_phase() -> None:
    phases = [Phase("validate", 0.0, {}, ""), Phase("body", 9.0, {}, "rows=1")]
    failed = Phase("publish", 1.0, {"error": "PublishFenceError"}, "")
    bar = timeline.of_log([*phases, failed])
    assert bar is not None
    assert sum(it.width for it in bar.segments) == pytest.approx(timeline.WIDTH)
    assert bar.segments[0].width > 0
    assert [it.tone for it in bar.segments] == ["check", "body", "bad"]
    assert "longest: body 9.00 s" in bar.words
    assert timeline.of_log([]) is None


def test_the_phase_that_runs_now_takes_what_is_left_of_the_attempt() -> None:
    running = RunningView(
        task="t",
        task_id="1",
        workflow_id="w",
        retry=0,
        slot=0,
        phase="body",
        seconds=5.0,
        phases=(PhaseView(phase="download", seconds=2.0),),
    )
    bar = timeline.of_running(running)
    assert [(it.name, it.seconds) for it in bar.segments] == [("download", 2.0), ("body", 3.0)]
    assert bar.words.endswith("now in body")


def measured(*seconds: float, budget: float | None = None) -> str:
    counted = WorkerMetrics(["clean"])
    for value in seconds:
        event = PhaseEvent("phase_ended", "publish", value, {"how": "merged"})
        counted.observe("clean", event)
    if budget is not None:
        counted.set_publish_budget("clean", budget)
    return counted.render().decode()


def test_a_histogram_has_each_bucket_by_itself_and_the_budget_in_its_place() -> None:
    [found] = build_histograms([measured(0.02, 0.02, 0.3, budget=5.0)])
    counts = {bar.high: bar.count for bar in found.bars}
    assert (counts[0.02], counts[0.3], sum(counts.values())) == (2, 1, 3)
    assert found.budget_x is not None
    assert found.p99_x is not None
    assert found.p99_x < found.budget_x < WIDTH
    assert "the budget gives a merge 5 s" in found.words


def test_two_workers_are_added_up() -> None:
    [found] = build_histograms([measured(0.02), measured(0.02, 0.3)])
    assert found.count == 3
    assert found.budget_x is None


def test_a_budget_without_a_publication_has_a_line_already() -> None:
    [found] = build_histograms([measured(budget=2.0)])
    assert (found.count, found.p99, found.budget) == (0, None, 2.0)


def test_a_publication_beyond_the_last_bucket_is_counted() -> None:
    [found] = build_histograms([measured(1000.0)])
    assert (found.bars[-1].label, found.bars[-1].count) == ("over 300 s", 1)
    assert found.p99_x is None


def test_what_is_not_metrics_is_refused() -> None:
    with pytest.raises(BackendError):
        build_histograms(["<html>"])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0123, "12 ms"),
        (-1, "0 ms"),
        (3.21, "3.2 s"),
        (75, "1 min 15 s"),
        (7260, "2 h 1 min"),
        (360_000, "4 d 4 h"),
    ],
)
def test_durations_are_written_as_people_say_them(seconds: float | None, text: str) -> None:
    assert show_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (4000, "4.0 kB"), (5 * 10**15, "5000.0 TB")]
)
def test_sizes_are_written_with_units(count: int, text: str) -> None:
    assert show_size(count) == text


def test_a_lease_has_an_end_only_while_an_attempt_runs() -> None:
    running = replace(attempt("a", "IN_PROGRESS"), updated=NOW, response_timeout_seconds=60.0)
    assert running.lease_ends is not None
    assert (running.lease_ends - NOW).total_seconds() == 60
    for without in ({"status": "COMPLETED"}, {"updated": None}, {"response_timeout_seconds": 0.0}):
        assert replace(running, **without).lease_ends is None
