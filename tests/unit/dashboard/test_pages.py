"""Every page over the in-memory world: empty, busy, failed, and with servers away."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, Protocol

import httpx
import pytest
from markupsafe import escape as markup_escape

from perago.dashboard import app
from perago.dashboard.kept import CachedValue, RecentValues
from perago.dashboard.overview import OverviewReader
from perago.dashboard.pages import Pages
from perago.dashboard.rendering import Page
from perago.errors import BackendUnavailableError
from perago.masking import remember_secret
from perago.observability.running import PhaseView
from support import dashboard_world
from support.dashboard_world import HOSTILE, NOW, DashboardWorld
from support.memory_world import REPOSITORY, writes


class Client(Protocol):
    def get(self, path: str) -> httpx.Response: ...


Open = Callable[[Any], Client]
Serve = Callable[[Any], httpx.Client]
_VOID = {"meta", "link", "img", "br", "input", "hr"}


class _Checked(HTMLParser):
    """Fails on elements that are not closed, and collects what could run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.inline: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.ids += [names["id"]] if names.get("id") else []  # type: ignore[list-item]
        self.inline += [name for name in names if name == "style" or name.startswith("on")]
        self.inline += ["script"] if tag == "script" and "src" not in names else []
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    found = _Checked(answer.text)
    assert found.open == []
    assert found.inline == []
    assert len(found.ids) == len(set(found.ids))
    return answer.text


def every_path(made: DashboardWorld) -> list[str]:
    found = ["/", "/repositories", f"/repositories/{REPOSITORY}", "/publish-times", "/errors"]
    found.append(f"/repositories/{REPOSITORY}/commits/{made.world.head.id}")
    found.append(f"/repositories/{REPOSITORY}/branches/main?limit=100")
    for workflow in made.conductor.workflows.values():
        found.append(f"/workflows/{workflow.workflow_id}")
        found += [f"/attempts/{task.task_id}" for task in workflow.tasks]
    return found


@pytest.mark.parametrize("name", ["empty", "busy", "broken"])
def test_every_page_is_well_formed_and_has_one_heading(name: str, open_page: Open) -> None:
    made: DashboardWorld = getattr(dashboard_world, name)()
    client = open_page(made.sources)
    for path in every_path(made):
        text = read(client, path)
        assert text.count("<h1>") == 1
        assert 'id="main"' in text


def test_an_empty_overview_says_how_to_begin(open_page: Open) -> None:
    text = read(open_page(dashboard_world.empty().sources), "/")
    assert "No attempt is running." in text
    assert "perago start MODULE --register" in text
    assert "0 of 4 slots busy" in text


def test_a_busy_overview_shows_phase_age_lease_queue_and_outcomes(open_page: Open) -> None:
    made = dashboard_world.busy()
    text = read(open_page(made.sources), "/")
    assert '<span class="badge busy">body</span>' in text
    assert "12.5 s" in text
    assert "progress: 12 of 40" in text
    assert '<a href="http://127.0.0.1:4040" rel="noopener">jobs on Spark</a>' in text
    assert "Lease left: 57.0 s of 1 min 0 s" in text
    assert "1 of 4 slots busy" in text
    assert "37 completed" in text
    assert ">3</dd>" in text  # waiting in queues
    assert text.count('<span class="badge good">completed</span>') == 4  # attempts and workflows


def test_an_attempt_of_an_unseen_worker_has_no_phase(open_page: Open) -> None:
    made = dashboard_world.busy()
    made.worker.attempts.clear()
    assert "on another worker" in read(open_page(made.sources), "/")


def test_an_attempt_that_the_search_does_not_find_yet_is_shown(open_page: Open) -> None:
    made = dashboard_world.empty()
    task = made.running("fresh")
    assert f"/attempts/{task.task_id}" in read(open_page(made.sources), "/")


def test_a_dead_conductor_is_a_problem_on_the_page_with_what_to_do(open_page: Open) -> None:
    made = dashboard_world.busy()
    made.conductor.outage = BackendUnavailableError("Conductor did not answer <at all>")
    client = open_page(made.sources)
    text = read(client, "/")
    assert "Conductor did not answer &lt;at all&gt;" in text
    assert "PRG-601" in text
    assert text.count('class="problem"') == 1
    assert "PRG-601" in read(client, "/workflows/any", 502)


def test_a_reason_is_shown_without_what_was_added_for_conductor(open_page: Open) -> None:
    made = dashboard_world.empty()
    failed = made.attempt(lambda files: {"text": 1})
    workflow = made.add(failed)
    view = made.conductor.workflows[workflow]
    made.conductor.workflows[workflow] = replace(view, reason=failed.reason)
    client = open_page(made.sources)
    pages = {path: read(client, path) for path in ("/", f"/workflows/{workflow}")}
    pages["attempt"] = read(client, f"/attempts/{failed.task_id}")
    for text in pages.values():
        assert "ResultError: the result does not fit Result" in text
        assert "[PRG-305]" not in text
        assert '<a href="/errors#PRG-305">PRG-305</a>' in text
    hint = '<span class="try">Try</span> Return the declared model;'
    # Of the workflow, and of its attempt.
    assert pages[f"/workflows/{workflow}"].count(hint) == 2
    assert pages["attempt"].count(hint) == 1


def test_workflows_that_are_over_are_read_once() -> None:
    made = dashboard_world.busy()
    reader = OverviewReader(made.sources)
    assert len(reader.read().workflows) == made.conductor.reads == 3
    reader.read()
    assert made.conductor.reads == 4  # the one that runs


def test_many_readers_cost_one_reading() -> None:
    kept, fresh = (CachedValue(itertools.count().__next__, seconds=it) for it in (60, -1))
    assert [kept(), kept()] == [0, 0]
    assert [fresh(), fresh()] == [0, 1]


def test_the_oldest_value_gives_way() -> None:
    kept: RecentValues[int, str] = RecentValues(2)
    for number in range(3):
        kept.keep(number, str(number))
    assert [kept.get(number) for number in range(3)] == [None, "1", "2"]


def test_what_does_not_change_is_read_once(open_page: Open) -> None:
    made = dashboard_world.busy()
    client = open_page(made.sources)
    branch = f"/repositories/{REPOSITORY}"
    workflow = f"/workflows/{next(iter(made.conductor.workflows))}"
    before = read(client, branch), read(client, workflow)
    made.conductor.logs.clear()
    made.sources.lake.changes = pytest.fail  # type: ignore[union-attr, method-assign]
    assert (read(client, branch), read(client, workflow)) == before


def test_a_workflow_shows_its_steps_and_the_timelines_of_its_attempts(open_page: Open) -> None:
    made = dashboard_world.busy()
    client = open_page(made.sources)
    ids = list(made.conductor.workflows)
    ended = read(client, f"/workflows/{ids[0]}")
    assert "clean_events: completed" in ended
    assert "phases in" in ended
    assert "data-live" not in ended
    running = read(client, f"/workflows/{ids[-1]}")
    assert "now in body" in running
    assert "publish_report: not started" in running
    assert f'data-live="/live/workflows/{ids[-1]}"' in running


def test_a_completed_attempt_shows_fences_commits_output_and_result(open_page: Open) -> None:
    made = dashboard_world.busy()
    task = next(iter(made.conductor.workflows.values())).tasks[0]
    text = read(open_page(made.sources), f"/attempts/{task.task_id}")
    assert text.count('<span class="badge good">passed</span>') == 3
    assert '<span class="badge kind-published">published</span>' in text
    assert '<span class="badge kind-replaced">replaced</span>' in text
    assert "read 1200 rows\nwrote 1187 rows" in text
    assert "publication_replaced: " in text
    assert "&#34;text&#34;: &#34;done&#34;" in text


def test_a_running_attempt_shows_its_phase_progress_and_the_fences_it_passed(
    open_page: Open,
) -> None:
    made = dashboard_world.busy()
    [running] = made.worker.attempts
    passed = (*running.phases, PhaseView(phase="first_fence", seconds=0.1))
    made.worker.attempts[:] = [running.model_copy(update={"phases": passed, "phase": "stage"})]
    text = read(open_page(made.sources), f"/attempts/{running.task_id}")
    assert '<span class="badge good">passed</span>' in text
    assert "now in stage" in text
    assert "progress: 12 of 40" in text
    assert '<a href="http://127.0.0.1:4040" rel="noopener">jobs on Spark</a>' in text
    assert "Running for" in text


def test_a_failed_attempt_shows_its_hint_and_links_to_its_error(open_page: Open) -> None:
    made = dashboard_world.broken()
    client = open_page(made.sources)
    task = list(made.conductor.workflows.values())[1].tasks[0]
    text = read(client, f"/attempts/{task.task_id}")
    assert '<span class="badge bad">refused</span>' in text
    assert "Find out who moved the branch" in text
    assert '<a href="/errors#PRG-502">PRG-502</a>' in text
    assert 'id="PRG-502"' in read(client, "/errors")


def test_an_attempt_is_shown_while_lakefs_is_away(open_page: Open) -> None:
    made = dashboard_world.busy()
    task = next(iter(made.conductor.workflows.values())).tasks[0]

    def away(*_: Any) -> Any:
        raise BackendUnavailableError("LakeFS did not answer")

    made.sources.lake.log = away  # type: ignore[union-attr, method-assign]
    client = open_page(made.sources)
    text = read(client, f"/attempts/{task.task_id}")
    assert "LakeFS did not answer" in text
    assert '<span class="badge good">passed</span>' in text
    assert "PRG-601" in read(client, f"/repositories/{REPOSITORY}", 502)


def test_a_branch_shows_every_kind_of_commit_with_its_changes(open_page: Open) -> None:
    made = dashboard_world.busy()
    text = read(open_page(made.sources), f"/repositories/{REPOSITORY}")
    for kind in ("published", "replaced", "by a person"):
        assert f">{kind}</span>" in text
    assert "HEAD" in text
    assert "input of 2" in text
    assert "in place of" in text
    assert "perago-replaced-" in text
    assert '<span class="key">data/clean/part-0.parquet</span>' in text
    assert "4.0 kB" in text


def test_a_commit_with_many_changes_is_cut_beside_the_graph_and_whole_on_its_page(
    open_page: Open,
) -> None:
    made = dashboard_world.empty()
    commit = made.world.commit({f"many/{n:03}": b"1" for n in range(60)})
    client = open_page(made.sources)
    branch = read(client, f"/repositories/{REPOSITORY}")
    assert "20 and more changed objects" in branch
    assert branch.count("many/") == 20
    page = read(client, f"/repositories/{REPOSITORY}/commits/{commit.id}")
    assert page.count("many/") == 60


def test_a_long_branch_is_shown_in_pages(open_page: Open) -> None:
    made = dashboard_world.empty()
    for number in range(25):
        made.world.commit({"data/a": str(number).encode()})
    client = open_page(made.sources)
    text = read(client, f"/repositories/{REPOSITORY}")
    assert text.count('class="rail"') == 20
    assert "?limit=50" in text
    assert read(client, f"/repositories/{REPOSITORY}?limit=50").count('class="rail"') == 27
    assert read(client, f"/repositories/{REPOSITORY}?limit=7").count('class="rail"') == 20


def test_publish_times_show_the_budget_s_line(open_page: Open) -> None:
    text = read(open_page(dashboard_world.busy().sources), "/publish-times")
    assert "39 publications" in text
    assert 'class="budget"' in text
    assert "the budget gives a merge 5.0 s" in text


def test_a_worker_that_is_away_is_said_and_nothing_is_made_up(open_page: Open) -> None:
    made = dashboard_world.busy()

    def away() -> str:
        raise BackendUnavailableError("no worker at 127.0.0.1:9464", hint="Start one.")

    made.worker.metrics = away  # type: ignore[method-assign]
    client = open_page(made.sources)
    assert "no worker at 127.0.0.1:9464" in read(client, "/publish-times")
    assert "No worker tells this page about itself." in read(client, "/")


def test_hostile_texts_are_escaped_on_every_page(serve_page: Serve) -> None:
    made = dashboard_world.broken()
    client = serve_page(made.sources)
    shown = 0
    for path in every_path(made):
        text = read(client, path)
        assert "<script>alert" not in text
        shown += str(markup_escape(HOSTILE)) in text
        stream = client.stream("GET", f"/live{path}")
        with stream as answer:
            data = next(line for line in answer.iter_lines() if line.startswith("data: "))
            assert "<script>alert" not in json.loads(data.removeprefix("data: "))
    assert shown >= 4


@pytest.mark.parametrize(
    "path",
    [
        "/workflows/none",
        "/attempts/none",
        "/repositories/none",
        f"/repositories/{REPOSITORY}/commits/none",
        "/nowhere",
        f"/attempts/{'x' * 400}",
        "/attempts/%00",
    ],
)
def test_what_is_not_there_is_a_page_that_leads_back(path: str, open_page: Open) -> None:
    text = read(open_page(dashboard_world.empty().sources), path, 404)
    assert "Back to the overview" in text


def test_a_worker_without_lakefs_has_no_repositories(open_page: Open) -> None:
    made = dashboard_world.busy()
    client = open_page(replace(made.sources, lake=None))
    assert "No LakeFS is configured here" in read(client, "/repositories", 404)
    task = next(iter(made.conductor.workflows.values())).tasks[0]
    assert "Works on" in read(client, f"/attempts/{task.task_id}")


def test_a_bug_in_a_page_is_a_page_without_its_text(open_page: Open) -> None:
    made = dashboard_world.empty()

    def bug(*_: Any) -> Any:
        raise RuntimeError("secret-of-the-bug")

    made.conductor.workflow = bug  # type: ignore[method-assign, assignment]
    client = open_page(made.sources)
    text = read(client, "/workflows/any", 500)
    assert "a bug in Perago" in text
    assert "secret-of-the-bug" not in text


def test_a_secret_of_this_process_is_masked(open_page: Open) -> None:
    remember_secret("hunter2-hunter2")
    made = dashboard_world.empty()
    task = made.attempt(writes(b=b"1"), output="the key is hunter2-hunter2")
    made.add(task)
    text = read(open_page(made.sources), f"/attempts/{task.task_id}")
    assert "the key is ********" in text


def test_a_stream_goes_on_when_a_server_that_was_away_is_back(serve_page: Serve) -> None:
    """It ended with "finished", and the open page stayed at the problem."""
    made = dashboard_world.empty()
    task = made.running()
    made.add(task)
    client = serve_page(made.sources)
    made.conductor.outage = BackendUnavailableError("Conductor did not answer")
    events: list[str] = []
    with client.stream("GET", f"/live/attempts/{task.task_id}") as stream:
        for line in stream.iter_lines():
            assert line != "event: over"
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                made.conductor.outage = None
            if len(events) == 2:
                break
    assert "Conductor did not answer" in events[0]
    assert "in progress" in events[1]


def test_a_stream_sends_a_change_and_ends_when_the_attempt_has_ended(serve_page: Serve) -> None:
    made = dashboard_world.empty()
    task = made.running()
    made.add(task)
    client = serve_page(made.sources)
    events: list[str] = []
    with client.stream("GET", f"/live/attempts/{task.task_id}") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("data: ") and len(line) > 10:
                events.append(json.loads(line.removeprefix("data: ")))
                made.add(replace(task, status="COMPLETED", ended=NOW))
                made.worker.attempts.clear()
    assert len(events) == 2
    assert "in progress" in events[0]
    assert "completed" in events[1]


def test_pages_that_open_at_once_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_MOST_STREAMS", 3)
    monkeypatch.setattr(app, "_TICK_SECONDS", 0.05)
    ends, started = threading.Event(), []
    served = app.build_app(dashboard_world.empty().sources, "t", port=9465, stopping=ends)

    async def open_stream() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.append(message["status"])
            if len(started) == 5:
                ends.set()

        headers = [(b"host", b"127.0.0.1:9465"), (b"cookie", b"perago_9465=t")]
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/live/"}
        scope["raw_path"] = b"/live/"
        scope |= {"query_string": b"", "headers": headers, "asgi": {"spec_version": "2.3"}}
        await served({**scope, "root_path": "", "scheme": "http"}, receive, send)

    async def open_all() -> None:
        await asyncio.gather(*(open_stream() for _ in range(5)))

    asyncio.run(open_all())
    assert sorted(started) == [200, 200, 200, 503, 503]


def test_a_template_that_fails_is_a_page_that_says_so(
    serve_page: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Page("overview.html", "Overview", {}, is_live=True)  # without the template's values
    monkeypatch.setattr(Pages, "errors", lambda *_: broken)
    client = serve_page(dashboard_world.empty().sources)
    answer = client.get("/errors")
    assert (answer.status_code, "which is a bug in Perago" in answer.text) == (500, True)
    with client.stream("GET", "/live/errors") as stream:
        lines = list(stream.iter_lines())
    assert any("which is a bug in Perago" in line for line in lines)
    assert "event: over" in lines
