"""The health server over real sockets."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from collections.abc import Callable, Sequence

import pytest
import structlog

from perago.errors import ConfigurationError
from perago.observability.health import HealthServer
from perago.observability.metrics import WorkerMetrics
from perago.observability.running import RUNNING, PhaseView, RunningView
from perago.settings import Address, Settings

ANY_PORT = Address("127.0.0.1", 0)


def serve(find_problems: Callable[[], Sequence[str]] = list, **options: float) -> HealthServer:
    return HealthServer(ANY_PORT, WorkerMetrics(["clean"]), find_problems, **options)  # type: ignore[arg-type]


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, body and headers as text."""
    assert server.address is not None
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode(), str(response.headers)
    finally:
        connection.close()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has ended a connection, waiting for it within its timeout."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:  # it was still waiting to be accepted
        return True


def test_metrics_are_served_in_the_format_that_prometheus_reads() -> None:
    with serve() as server:
        status, body, headers = ask(server, "/metrics")
    assert status == 200
    assert 'perago_attempts_total{outcome="completed",task="clean"} 0.0' in body
    assert "text/plain; version=" in headers
    assert "Python" not in headers


def test_what_runs_is_served_as_json() -> None:
    running = RunningView(
        task="clean",
        task_id="1",
        workflow_id="w",
        retry=2,
        slot=0,
        phase="body",
        seconds=1.5,
        phases=(PhaseView(phase="download", seconds=0.5),),
    )
    server = HealthServer(ANY_PORT, WorkerMetrics(), list, find_running=lambda: [running])
    with server:
        status, body, headers = ask(server, "/running")
    assert (status, RUNNING.validate_json(body)) == (200, [running])
    assert "application/json" in headers


def test_a_process_that_answers_is_alive_and_ready_only_when_it_says_so() -> None:
    problems = ["the disk is full", "nobody answers"]
    with serve(lambda: problems) as server:
        assert ask(server, "/healthz")[0] == 200
        status, body, _ = ask(server, "/readyz")
        assert (status, body) == (503, "not ready: the disk is full\nnot ready: nobody answers\n")
        problems.clear()
        assert ask(server, "/readyz?verbose=1")[:2] == (200, "ready\n")
        problems.append("draining")
        assert ask(server, "/readyz")[0] == 503


def test_a_readiness_check_that_raises_is_not_ready() -> None:
    def broken() -> list[str]:
        raise RuntimeError("bug")

    with structlog.testing.capture_logs() as lines, serve(broken) as server:
        assert ask(server, "/readyz")[0] == 503
        assert ask(server, "/healthz")[0] == 200
    assert "health_check_failed" in {line["event"] for line in lines}


@pytest.mark.parametrize("path", ["/", "/metrics/", "/../etc/passwd", "/healthz/x", "/metricsx"])
def test_any_other_path_is_not_found(path: str) -> None:
    with serve() as server:
        assert ask(server, path)[0] == 404


def test_head_has_the_headers_and_no_body() -> None:
    with serve() as server:
        status, body, headers = ask(server, "/metrics", "HEAD")
    assert (status, body) == (200, "")
    assert "Content-Length: 0" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_other_methods_are_not_allowed(method: str) -> None:
    with serve() as server:
        status, _, headers = ask(server, "/metrics", method)
    assert status == 405
    assert "Allow: GET, HEAD" in headers


def test_a_client_that_never_finishes_its_request_is_cut_off() -> None:
    with serve(request_seconds=0.3) as server:
        assert server.address is not None
        with socket.create_connection(server.address, timeout=30) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
            assert is_closed(slow)
        assert ask(server, "/healthz")[0] == 200


def test_idle_connections_beyond_the_bound_are_closed_and_do_not_stop_the_server() -> None:
    with serve() as server:
        assert server.address is not None
        idle = [socket.create_connection(server.address, timeout=30) for _ in range(16)]
        try:
            with socket.create_connection(server.address, timeout=30) as refused:
                assert is_closed(refused)
        finally:
            for connection in idle:
                connection.close()
        status = 0
        while status != 200:  # bounded by the test's timeout: places are freed by the closes above
            try:
                status = ask(server, "/healthz")[0]
            except (http.client.HTTPException, OSError):
                continue


def test_leaving_the_context_ends_threads_connections_and_the_port() -> None:
    before = set(threading.enumerate())
    with serve() as server:
        address = server.address
        assert address is not None
        waiting = socket.create_connection(address, timeout=30)
    with waiting:
        assert is_closed(waiting)
    assert server.address is None
    assert "perago-health" not in {item.name for item in set(threading.enumerate()) - before}
    with pytest.raises(ConnectionRefusedError), socket.create_connection(address, timeout=5):
        pass


def test_a_taken_port_that_was_asked_for_is_a_configuration_error() -> None:
    with serve() as first:
        assert first.address is not None
        settings = Settings(metrics_address=first.address)
        second = HealthServer.from_settings(settings, WorkerMetrics(), lambda: True)
        with pytest.raises(ConfigurationError) as caught, second:
            pass
    assert "PERAGO_METRICS_ADDRESS: cannot listen on 127.0.0.1:" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_taken_port_that_is_only_the_default_gives_a_warning_and_no_server() -> None:
    with serve() as first:
        second = HealthServer(first.address, WorkerMetrics(), list, explicit=False)
        with structlog.testing.capture_logs() as lines, second:
            assert second.address is None
    (line,) = [line for line in lines if line["event"] == "health_not_served"]
    assert line["log_level"] == "warning"
    assert line["reason"] == "Address already in use"


def test_a_host_that_does_not_exist_is_a_configuration_error() -> None:
    server = HealthServer(Address("no-such-host.invalid", 1), WorkerMetrics(), list)
    with pytest.raises(ConfigurationError, match="no-such-host"), server:
        pass


def test_off_serves_nothing() -> None:
    server = HealthServer.from_settings(
        Settings(metrics_address=None), WorkerMetrics(), lambda: True
    )
    with server:
        assert server.address is None


def test_requests_are_not_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG), serve() as server:
        ask(server, "/healthz")
    assert caplog.records == []
    assert "GET" not in "".join(capfd.readouterr())
