"""The demonstration's own parts: the gate before Conductor, what is printed, its options."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import demo
import httpx
import pytest
from backstage.gate import Gate
from backstage.show import Show, counted, say, size

from support.waiting import joined


@pytest.fixture
def conductor() -> Iterator[tuple[str, list[bytes]]]:
    """The address of something that takes reports, and the reports it got."""
    received: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(body)
            self.send_response(201)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Not in the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True  # a connection that is kept open keeps nothing from ending
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/api", received
    server.shutdown()
    joined(thread)
    server.server_close()


def test_the_gate_forwards_everything_but_the_report_it_waits_for(
    conductor: tuple[str, list[bytes]],
) -> None:
    url, received = conductor
    calls: list[str] = []
    with Gate(url) as gate:
        gate.stop_report(lambda report: report["status"] == "DONE", then=lambda: calls.append("x"))
        with httpx.Client(base_url=gate.url) as client:
            beat = client.post("/tasks", json={"status": "IN_PROGRESS"})
            assert (beat.status_code, beat.json()) == (201, {"status": "IN_PROGRESS"})
            assert not gate.has_stopped()
            with pytest.raises(httpx.RemoteProtocolError):
                client.post("/tasks", json={"status": "DONE", "id": 1})
            assert gate.has_stopped()
            # One report is stopped; whatever comes after is somebody else's.
            client.post("/tasks", json={"status": "DONE", "id": 2})
    assert calls == ["x"]
    assert gate.stopped == {"status": "DONE", "id": 1}
    assert [b'"id"' in body for body in received] == [False, True]


def test_the_gate_says_when_conductor_is_not_there() -> None:
    with Gate("http://127.0.0.1:9/api") as gate, httpx.Client(base_url=gate.url) as client:
        assert client.get("/workflow/x").status_code == 502


REFS = {"input": "a" * 64, "first": "b" * 64, "second": "c" * 64}


class FakeLake:
    def difference(self, before: str, after: str) -> Any:
        from backstage.servers import Difference

        return Difference(objects=1, removed=2, size=1_234)


class FakeConductor:
    def task(self, task_id: str) -> dict[str, Any]:
        workspace = {"workspace": {"ref": REFS["input"]}}
        described = {"taskDefinition": {"description": "Does it."}}
        result = {"rows": 1_000, "checks": {"sound": True, "whole": False}, "chart": ["▂▂ ██"]}
        output = {"workspace": {"ref": REFS["second"]}, "result": result}
        return {"inputData": workspace, "workflowTask": described, "outputData": output}


def attempt(*lines: dict[str, Any]) -> list[dict[str, Any]]:
    ids = {"task": "clean", "task_id": "t", "retry": 1, "timestamp": "2026-03-14T00:00:00Z"}
    ended = {"action": "attempt_completed", "timestamp": "2026-03-14T00:00:02.5Z"}
    return [{**ids, **line} for line in ({"action": "attempt_claimed"}, *lines, ended)]


def phase(name: str, seconds: float, **details: Any) -> dict[str, Any]:
    return {"action": "phase_ended", "phase": name, "seconds": seconds, **details}


def test_an_attempt_is_told_with_its_phases_its_refs_and_its_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show = Show(FakeLake(), FakeConductor())  # type: ignore[arg-type]
    tag = f"perago-replaced-20260314-{REFS['first']}"
    lines = attempt(
        phase("validate", 0.01),
        phase("branch", 0.02),
        phase("body", 1.5),
        {"action": "publish_planned", "plan": "ReplaceAbandoned", "head": REFS["first"]},
        {"action": "replaced_commit_tagged", "tag": tag, "commit": REFS["first"]},
        phase("publish", 0.05, how="replaced", ref=REFS["second"], abandoned=REFS["first"]),
    )
    for line in lines[:-1]:
        show.tell(line)
        assert show.in_attempt
    show.tell(lines[-1])
    assert not show.in_attempt
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 100
    for text in (
        "clean, attempt 2, from aaaaaaaaaa",
        "validate 0.01 s · branch 0.02 s",
        "body              1.50 s",
        "main is at bbbbbbbbbb, one commit past the input: ReplaceAbandoned",
        "aaaaaaaaaa → cccccccccc   1 object, 1.2 kB, 2 removed",
        "bbbbbbbbbb is off the branch",
        "COMPLETED         2.50 s",
        "rows 1,000; checks 1 of 2 hold (not: whole)",
        "▂▂ ██",
    ):
        assert text in printed


def test_colour_is_for_terminals_that_want_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    say("x", "red")
    monkeypatch.setenv("NO_COLOR", "1")
    say("x", "red")
    assert capsys.readouterr().out == "\x1b[31mx\x1b[0m\nx\n"


def test_numbers_are_for_people() -> None:
    sizes = [size(number) for number in (0, 999, 1_000, 29_600, 3_300_000, 5e9)]
    assert sizes == ["0 B", "999 B", "1.0 kB", "29.6 kB", "3.3 MB", "5.0 GB"]
    assert (counted(1, "object"), counted(1_000, "object")) == ("1 object", "1,000 objects")


@pytest.mark.parametrize("rows", ["many", "0", "-5", "999", "1.5"])
def test_a_bad_number_of_rows_is_refused_with_a_reason(
    rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        demo.parse([f"--rows={rows}"])
    assert "--rows: " in capsys.readouterr().err


def test_rows_may_be_written_with_underscores() -> None:
    assert demo.parse(["--rows", "5_000_000"]).rows == 5_000_000
