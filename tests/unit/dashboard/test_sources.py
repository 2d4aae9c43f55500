"""Where the figures come from: another process's worker, and connections from settings."""

from __future__ import annotations

from contextlib import closing

import pytest

from perago.dashboard.overview import read_worker
from perago.dashboard.sources import RemoteWorker, open_sources
from perago.errors import BackendError, BackendUnavailableError, ConfigurationError
from perago.observability.health import HealthServer
from perago.observability.metrics import WorkerMetrics
from perago.observability.running import RunningView
from perago.settings import Address, Settings
from support.garbage_server import GarbageServer, answer

ANY_PORT = Address("127.0.0.1", 0)
CONDUCTOR = {"conductor_server_url": "http://127.0.0.1:1/api"}
LAKEFS = {
    "lakefs_endpoint": "http://127.0.0.1:1",
    "lakefs_access_key_id": "key",
    "lakefs_secret_access_key": "secret",
}


def test_a_worker_of_another_process_is_asked_at_its_metrics_address() -> None:
    running = RunningView(
        task="t", task_id="1", workflow_id="w", retry=0, slot=0, phase="body", seconds=1.0
    )
    metrics = WorkerMetrics(["t"])
    metrics.set_slots(3)
    metrics.set_busy_slots(1)
    with HealthServer(ANY_PORT, metrics, list, find_running=lambda: [running]) as server:
        assert server.address is not None
        with closing(RemoteWorker(server.address)) as worker:
            row = read_worker(worker)
            assert (row.slots, row.busy, row.last_poll) == (3, 1, None)
            assert worker.running() == [running]


def test_no_worker_is_an_error_that_says_what_to_do() -> None:
    with (
        closing(RemoteWorker(Address("127.0.0.1", 1))) as worker,
        pytest.raises(BackendUnavailableError, match=r"no worker at 127\.0\.0\.1:1") as caught,
    ):
        worker.metrics()
    assert "perago start" in caught.value.hint


@pytest.mark.parametrize(
    "garbage",
    [
        answer("404 Not Found", b"try something else"),
        answer("200 OK", b"<html>a page</html>"),
        answer("200 OK", b'[{"task": 1}]'),
        answer(
            "200 OK",
            b'[{"task": "t", "task_id": "1", "workflow_id": "w", "retry": 0, "slot": 0, '
            b'"phase": "body", "seconds": 1, "spark_ui": "javascript:alert(1)"}]',
        ),
    ],
)
def test_what_is_no_worker_is_refused(garbage: bytes) -> None:
    with GarbageServer(lambda: iter([garbage]), {}) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        with closing(RemoteWorker(Address(host, int(port.partition("/")[0])))) as worker:
            with pytest.raises(BackendError):
                worker.running()
            with pytest.raises(BackendError):
                read_worker(worker)


def test_without_lakefs_settings_there_is_no_lake_and_without_conductor_nothing() -> None:
    with closing(open_sources(Settings.model_validate(CONDUCTOR), [])) as sources:
        assert sources.lake is None
    with closing(open_sources(Settings.model_validate({**CONDUCTOR, **LAKEFS}), [])) as sources:
        assert sources.lake is not None
    with pytest.raises(ConfigurationError, match="CONDUCTOR_SERVER_URL"):
        open_sources(Settings(), [])
