"""Servers that go away during an attempt and come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perago import dev
from perago.servers.lakefs import LakeFS
from support.lake_servers import lakefs_server
from support.real_world import SEED, Servers
from support.waiting import until
from support.workers import PHASES, WorkerSite, site_on

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


@contextmanager
def _site_on(endpoints: dev.Endpoints, folder: Path) -> Iterator[WorkerSite]:
    servers = Servers(endpoints)
    with site_on(servers, endpoints, folder) as place:
        yield place
    servers.close()


@pytest.fixture
def site_of_stack(own_stack: dev.Stack, tmp_path: Path) -> Iterator[WorkerSite]:
    """A site on two servers that the test may stop and start."""
    with _site_on(own_stack.endpoints, tmp_path) as place:
        yield place


@pytest.fixture(scope="module")
def own_lakefs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeFS]:
    with lakefs_server(tmp_path_factory.mktemp("own") / "lakefs") as server:
        yield server


@pytest.fixture
def site_of_lakefs(
    own_lakefs: LakeFS, endpoints: dev.Endpoints, tmp_path: Path
) -> Iterator[WorkerSite]:
    """A site on the run's Conductor and a LakeFS that the test may stop and start."""
    own = endpoints.model_copy(update={"lakefs": own_lakefs.endpoint})
    with _site_on(own, tmp_path) as place:
        yield place


@pytest.mark.slow
def test_conductor_restarted_during_a_body_completes_the_attempt_once(
    own_stack: dev.Stack, site_of_stack: WorkerSite
) -> None:
    site = site_of_stack
    worker = site.start()
    workflow = site.workflow(do="wait", signs=str(site.signs))
    site.await_body()
    own_stack.conductor.stop()
    until(lambda: worker.count("heartbeat_failed") > 0, "a heartbeat to fail")
    own_stack.conductor.start()
    site.go()
    tasks = site.finish(workflow, seconds=120)
    # The lease ran out while Conductor was away: it may hand the attempt to a retry, or not.
    assert tasks[-1]["status"] == "COMPLETED"
    assert site.world.history()[1] == site.world.ref
    assert site.world.contents() == {**SEED, "data/out.txt": "new"}
    assert worker.stop() == 0
    site.assert_nothing_left()


@pytest.mark.slow
def test_conductor_away_at_completion_gets_the_result_when_it_is_back(
    own_stack: dev.Stack, site_of_stack: WorkerSite
) -> None:
    site = site_of_stack
    site.conductor.hold(r"POST /api/tasks HTTP")
    worker = site.start()
    workflow = site.workflow("w_plain", signs=str(site.signs))
    assert site.conductor.reached.wait(60), worker.log_text()
    own_stack.conductor.stop()
    site.conductor.release()
    own_stack.conductor.start()
    tasks = site.finish(workflow, seconds=120)
    assert tasks[-1]["status"] == "COMPLETED"
    assert worker.stop() in {0, 1}
    site.assert_nothing_left()


def test_lakefs_restarted_during_a_body_changes_nothing(
    own_lakefs: LakeFS, site_of_lakefs: WorkerSite
) -> None:
    site = site_of_lakefs
    worker = site.start()
    workflow = site.workflow(do="wait", signs=str(site.signs))
    site.await_body()
    own_lakefs.stop()
    own_lakefs.start()
    site.go()
    [task] = site.finish(workflow)
    assert task["status"] == "COMPLETED"
    assert site.world.contents() == {**SEED, "data/out.txt": "new"}
    assert worker.stop() == 0
    site.world.assert_tidy()
    site.assert_nothing_left()


def test_lakefs_gone_at_the_merge_fails_closed_and_the_retry_publishes(
    own_lakefs: LakeFS, site_of_lakefs: WorkerSite
) -> None:
    site = site_of_lakefs
    site.lakefs.hold(PHASES["publish"])
    worker = site.start()
    workflow = site.workflow()
    assert site.lakefs.reached.wait(60), worker.log_text()
    own_lakefs.stop()
    site.lakefs.release()  # the request goes nowhere: nobody can say whether it landed
    until(lambda: worker.count("reply_lost") > 0, "the lost reply to be noticed")
    own_lakefs.start()
    tasks = site.finish(workflow, seconds=120)
    assert tasks[-1]["status"] == "COMPLETED"
    # Known not to have landed, if LakeFS is back before the withdrawal of the licence gives up.
    outcomes = ("NotPublishedError: ", "UnknownOutcomeError: ")
    assert tasks[0]["reasonForIncompletion"].startswith(outcomes)
    assert site.world.history()[:2] == [
        tasks[-1]["outputData"]["workspace"]["ref"],
        site.world.ref,
    ]
    assert site.world.contents() == {**SEED, "data/out.txt": "new"}
    assert worker.stop() == 0
    site.assert_nothing_left()
