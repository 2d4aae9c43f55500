"""The dashboard over a real Conductor and a real LakeFS: searches, queues, listings, leases."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from perago import dev
from perago.dashboard.server import Dashboard
from perago.dashboard.sources import open_sources
from perago.protocol.outcome import Completed
from perago.settings import Settings
from perago.worker.report import report, task_log
from support.real_world import RealWorld, write_new
from support.waiting import until

pytestmark = pytest.mark.servers


@pytest.fixture
def client(endpoints: dev.Endpoints) -> Iterator[httpx.Client]:
    settings = Settings.model_validate(
        {
            "lakefs_endpoint": endpoints.lakefs.endpoint,
            "lakefs_access_key_id": endpoints.lakefs.access_key_id,
            "lakefs_secret_access_key": endpoints.lakefs.secret_access_key,
            "conductor_server_url": endpoints.conductor.server_url,
        }
    )
    with (
        Dashboard(open_sources(settings, []), port=0) as dashboard,
        httpx.Client(follow_redirects=True, timeout=60, trust_env=False) as opened,
    ):
        opened.base_url = httpx.URL(dashboard.url).copy_with(path="/", query=None)
        assert opened.get(dashboard.url).status_code == 200
        yield opened


def read(client: httpx.Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_waiting_a_running_and_an_ended_attempt_are_shown(
    world: RealWorld, client: httpx.Client
) -> None:
    """What the search, the queues and the listings answer is the servers' own."""
    workflow_id = world.start()
    delivery = world.claim()
    task_id = delivery.claim.attempt.task_id
    waiting = world.start()

    until(lambda: f"/attempts/{task_id}" in read(client, "/"), "the search finds it")
    overview = read(client, "/")
    assert world.task_type in overview
    assert f"/workflows/{waiting}" in overview
    assert "Lease left: " in overview
    assert "not started" not in read(client, f"/workflows/{workflow_id}")

    outcome = world.run(world.job(write_new), delivery)
    assert isinstance(outcome, Completed)
    logs = task_log(world.events, outcome, "printed by the body")
    report(world.conductor, delivery.claim, outcome, logs, seconds=20)

    attempt = read(client, f"/attempts/{task_id}")
    assert "printed by the body" in attempt
    assert "the branch was at the input: merged" in attempt
    assert "phases in" in read(client, f"/workflows/{workflow_id}")
    head = world.history()[0]
    branch = read(client, f"/repositories/{world.repository}")
    assert head in branch
    assert f"/attempts/{task_id}" in branch
    assert "data/out/c.txt" in read(client, f"/repositories/{world.repository}/commits/{head}")
    assert world.repository in read(client, "/repositories")
    world.operate("DELETE", f"/workflow/{waiting}")


def test_what_is_not_there_is_said(client: httpx.Client) -> None:
    for path in ("/workflows/none", "/attempts/none", "/repositories/none"):
        answer = client.get(path)
        assert answer.status_code == 404, answer.text
        assert "PRG-604" in answer.text
