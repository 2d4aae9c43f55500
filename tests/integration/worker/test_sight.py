"""What a running worker shows: metrics, health, log lines."""

from __future__ import annotations

import re
import socket

import httpx
import pytest

from support.waiting import until
from support.workers import WorkerSite

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def count(page: httpx.Client, kind: str) -> float:
    """The sum of a task's samples of one kind."""
    lines = page.get("/metrics").raise_for_status().text.splitlines()
    chosen = (line for line in lines if 'task="w_write"' in line and kind in line)
    return sum(float(line.rpartition(" ")[2]) for line in chosen if "_created" not in line)


def test_a_running_worker_counts_what_it_does(site: WorkerSite) -> None:
    port = free_port()
    worker = site.start(slots=2, PERAGO_METRICS_ADDRESS=f"127.0.0.1:{port}")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as page:
        assert page.get("/healthz").status_code == 200
        until(lambda: page.get("/readyz").status_code == 200, "the worker to be ready")
        site.finish(site.workflow())
        site.finish(site.workflow(do="fail"))
        # An attempt is counted after its outcome was posted and read back.
        until(lambda: count(page, 'outcome="completed"') == 1, "one completed attempt")
        until(lambda: count(page, 'outcome="failed"') == 4, "one failed attempt, three retries")
        assert count(page, "publish_seconds_count") >= 1
    assert worker.stop() == 0


def test_every_line_has_an_action_and_an_attempts_lines_have_its_ids(site: WorkerSite) -> None:
    worker = site.start()
    workflow = site.workflow(do="tell")
    [task] = site.finish(workflow)
    assert worker.stop() == 0
    # What a body knows of its attempt, and tells of its progress.
    assert task["outputData"]["result"]["note"] == f"w_write {task['taskId']} 1 None False"
    [progress] = [line for line in worker.lines() if line["action"] == "task_progress"]
    assert (progress["done"], progress["total"]) == (1, 2)
    log = site.servers.http.get(f"/tasks/{task['taskId']}/log").raise_for_status().json()
    assert any("progress: 1 of 2" in entry["log"] for entry in log)
    lines = worker.lines()
    assert all(line.get("action") for line in lines)
    about = [line for line in lines if line.get("phase")]
    assert about
    for line in about:
        assert line["workflow_id"] == workflow
        assert line["task_id"] == task["taskId"]
        assert line["execution_id"]


def test_a_worker_serves_its_dashboard(site: WorkerSite) -> None:
    """The phase of a running attempt is the supervisor's; that the page ends with it, uvicorn's."""
    site.options = ("--ui", "--ui-port", "0")
    worker = site.start()
    [url] = re.findall(r"^dashboard +(http\S+)$", worker.log_text(), re.MULTILINE)
    base, _, token = url.partition("/?token=")
    site.workflow(do="wait", signs=str(site.signs))
    site.await_body()
    with httpx.Client(timeout=20, follow_redirects=True, trust_env=False) as page:
        assert page.get(base).status_code == 403
        overview = page.get(url)
        assert "1 of 1 slots busy" in overview.text
        assert '<span class="badge busy">body</span>' in overview.text
        site.go()
        branch = f"{base}/repositories/{site.world.repository}"
        until(lambda: ">published<" in page.get(branch).text, "the publication on the page")
        # A phase is counted when the executor has told of its end.
        times = f"{base}/publish-times"
        until(lambda: "1 publication, 99 of 100" in page.get(times).text, "the time it took")
        assert worker.stop() == 0
        with pytest.raises(httpx.TransportError):
            page.get(base)
    log = worker.log_text().replace(url, "")
    assert token not in log
    assert worker.count("dashboard_failed") == 0
