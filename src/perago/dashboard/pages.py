"""Each page: what is read for it, and the template that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request

from perago.conductor.inspection import TaskView, WorkflowView
from perago.dashboard import publish_times, timeline
from perago.dashboard.branch import CommitCache, read_branch, read_changes
from perago.dashboard.kept import CachedValue, RecentValues
from perago.dashboard.overview import OverviewReader, seconds_of
from perago.dashboard.rendering import Page, PageProblem
from perago.dashboard.sources import LakeSource, Sources
from perago.dashboard.steps import draw
from perago.dashboard.timeline import Timeline
from perago.errors import KINDS, BackendError
from perago.names import LIVE_STATUSES, OPEN_STATUSES
from perago.observability.running import RunningView
from perago.operations.attempts import Phase, find_traces, judge_fences, read_attempt, read_task_log
from perago.protocol.outcome import bare_reason
from perago.protocol.record import read_record
from perago.text import shorten

# Attempts of a workflow whose task log is read: a request each.
_MOST_TIMELINES = 40
_MOST_STEPS = 200
_MOST_KEPT = 500
_OVERVIEW_SECONDS = 1.0
_MOST_REPOSITORIES = 200
_MOST_BRANCHES = 200
_LIMITS = (20, 50, 100)
_LONGEST_ID = 300
_LONGEST_JSON = 4000


class NoPageError(Exception):
    """There is nothing at this address."""


class Pages:
    """One function for each page; they run on several threads."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        # Many open pages cost the servers no more than one.
        self._overview = CachedValue(OverviewReader(sources).read, _OVERVIEW_SECONDS)
        self._timelines: RecentValues[tuple[str, str], Timeline] = RecentValues(_MOST_KEPT)
        self._commits = CommitCache(sources.lake) if sources.lake is not None else None

    def overview(self, _: Request) -> Page:
        """What runs now."""
        values = {"overview": self._overview()}
        return Page("overview.html", "Overview", values, is_live=True)

    def workflow(self, request: Request) -> Page:
        """A workflow: its steps as a graph, and the timeline of each attempt."""
        found = self._sources.conductor.workflow(_id(request, "workflow_id"))
        running = self._running()
        shown = [task for task in found.tasks if task.kind == "SIMPLE"]
        now = self._sources.now()
        rows = [
            {
                "task": task,
                "seconds": seconds_of(task, now),
                "timeline": self._timeline(task, running) if index < _MOST_TIMELINES else None,
            }
            for index, task in enumerate(shown[:_MOST_STEPS])
        ]
        values = {
            "workflow": found,
            "seconds": _duration(found, self._sources),
            "graph": draw(found),
            "attempts": rows,
            "left_out": max(len(shown) - _MOST_STEPS, 0),
        }
        live = found.status in LIVE_STATUSES
        return Page("workflow.html", f"Workflow {found.name}", values, is_live=live)

    def attempt(self, request: Request) -> Page:
        """An attempt: fences, licences, commits, output, result or failure."""
        found = read_attempt(self._sources.conductor, _id(request, "task_id"))
        problems: list[PageProblem] = []
        traces = None
        if found.workspace is not None and self._commits is not None:
            try:
                traces = find_traces(self._commits, found.task, found.workspace)
            except BackendError as error:
                # What Conductor says is worth showing when LakeFS cannot be asked.
                problems.append(PageProblem.of(error))
        running = self._running().get(found.task.task_id)
        bar = timeline.of_running(running) if running else timeline.of_log(found.log.phases)
        values = {
            "attempt": found,
            "task": found.task,
            "running": running,
            "fences": list(judge_fences(_phases(running))) if running else found.fences,
            "seconds": seconds_of(found.task, self._sources.now()),
            "lease_left": _lease_left(found.task, self._sources),
            "timeline": bar,
            "traces": traces,
            "problems": problems,
            "input": _as_json(found.task.input),
            "result": _as_json(found.task.output) if found.task.output else "",
        }
        live = found.task.status in OPEN_STATUSES
        return Page("attempt.html", f"Attempt of {found.task.task_name}", values, is_live=live)

    def repositories(self, _: Request) -> Page:
        """The repositories of LakeFS."""
        found = self._lake().repositories(_MOST_REPOSITORIES + 1)
        values = {
            "repositories": found[:_MOST_REPOSITORIES],
            "more": len(found) > _MOST_REPOSITORIES,
        }
        return Page("repositories.html", "Repositories", values)

    def branch(self, request: Request) -> Page:
        """A branch as a graph of commits."""
        lake = self._lake()
        repository = _id(request, "repository")
        branch = _id(request, "branch") if "branch" in request.path_params else None
        limit = _limit(request)
        found = read_branch(self._commits or CommitCache(lake), repository, branch, limit)
        values = {
            "view": found,
            "branches": lake.branches(repository, _MOST_BRANCHES),
            "limit": limit,
            "next_limit": next((it for it in _LIMITS if it > limit), None),
        }
        return Page("branch.html", f"{found.repository} · {found.branch}", values, is_live=True)

    def commit(self, request: Request) -> Page:
        """A commit: its record, and the objects that it changed."""
        lake = self._lake()
        repository = _id(request, "repository")
        commit = lake.get_commit(repository, _id(request, "commit"))
        changes, more = read_changes(lake, repository, commit)
        values = {
            "repository": repository,
            "commit": commit,
            "record": read_record(commit),
            "changes": changes,
            "more": more,
        }
        return Page("commit.html", f"Commit {commit.id[:12]}", values)

    def publish_times(self, _: Request) -> Page:
        """How long publications took."""
        texts, problems = [], []
        for worker in self._sources.workers:
            try:
                texts.append(worker.metrics())
            except BackendError as error:
                problems.append(PageProblem.of(error))
        values = {"histograms": publish_times.build_histograms(texts), "problems": problems}
        return Page("publish_times.html", "Publish times", values, is_live=True)

    def errors(self, _: Request) -> Page:
        """Every error with what it means and what to do."""
        return Page("errors.html", "Errors", {"kinds": KINDS})

    def _lake(self) -> LakeSource:
        if self._sources.lake is None:
            raise NoPageError("No LakeFS is configured here, so there is no repository to show.")
        return self._sources.lake

    def _running(self) -> dict[str, RunningView]:
        return {it.task_id: it for it in self._told()}

    def _told(self) -> Iterator[RunningView]:
        for worker in self._sources.workers:
            try:
                yield from worker.running()
            except BackendError:
                continue  # the overview says that it is away

    def _timeline(self, task: TaskView, running: dict[str, RunningView]) -> Timeline | None:
        if task.task_id in running:
            return timeline.of_running(running[task.task_id])
        if task.status in OPEN_STATUSES:
            return None
        # A task that runs once more keeps its id, and ends at another time.
        key = task.task_id, f"{task.status} {task.ended}"
        if (kept := self._timelines.get(key)) is not None:
            return kept
        log = self._sources.conductor.log(task.task_id)
        found = timeline.of_log(read_task_log(log, bare_reason(task.reason or "")).phases)
        return self._timelines.keep(key, found) if found is not None else None


def _id(request: Request, name: str) -> str:
    """A name in the address; longer ones name nothing, and would be sent on to a server."""
    value = str(request.path_params[name])
    if not value or len(value) > _LONGEST_ID or not value.isprintable():
        raise NoPageError("There is no such page.")
    return value


def _limit(request: Request) -> int:
    """How many commits are shown: one of a few numbers."""
    text = request.query_params.get("limit", "")
    return int(text) if text in {str(limit) for limit in _LIMITS} else _LIMITS[0]


def _duration(workflow: WorkflowView, sources: Sources) -> float | None:
    if workflow.started is None:
        return None
    return ((workflow.ended or sources.now()) - workflow.started).total_seconds()


def _phases(running: RunningView) -> list[Phase]:
    """The phases that ended, as a task log will have them."""
    return [
        Phase(it.phase, it.seconds, {"error": it.error} if it.error else {}, "")
        for it in running.phases
    ]


def _lease_left(task: TaskView, sources: Sources) -> float | None:
    ends = task.lease_ends
    return max((ends - sources.now()).total_seconds(), 0.0) if ends is not None else None


def _as_json(value: Any) -> str:
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = "<it cannot be written as JSON>"
    return shorten(text, _LONGEST_JSON)
