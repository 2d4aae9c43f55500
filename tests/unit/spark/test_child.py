"""Requests to a Spark Connect server are sent from a process that can be ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perago.errors import BackendUnavailableError
from perago.spark import child, interrupting
from perago.wiring import spark_probe

GRPC = """<_InactiveRpcError of RPC that terminated with:
	status = StatusCode.UNAVAILABLE
	details = "failed to connect to all addresses"
	debug_error_string = "UNKNOWN: more"
>"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GRPC, "failed to connect to all addresses"),
        ("[SESSION_CLOSED] The session is closed.\n\nJVM stacktrace:\nmore", "[SESSION_CLOSED]"),
    ],
)
def test_the_telling_line_of_an_error_is_kept(text: str, expected: str) -> None:
    assert child.telling_line(text).startswith(expected)


def test_a_request_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(BackendUnavailableError, match=r"did not answer within 0 s"):
        child.ask(spark_probe, {"remote": "sc://localhost:1", "with_job": False}, seconds=0.01)


def test_an_error_of_the_child_is_an_error_of_the_caller() -> None:
    with pytest.raises(BackendUnavailableError, match="Spark Connect server failed: 'remote'"):
        child.ask(interrupting, {}, seconds=60)


def test_a_supervisor_loads_what_it_runs_in_a_child_without_loading_pyspark() -> None:
    program = (
        "import sys\n"
        "import perago.worker.service, perago.worker.preflight, perago.spark.runtime\n"
        "wanted = ('perago.wiring.spark_probe', 'perago.spark.interrupting')\n"
        "assert all(name in sys.modules for name in wanted)\n"
        "print([name for name in ('pyspark', 'pyarrow', 'grpc') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_process_that_cannot_be_started_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(BackendUnavailableError, match="no process could be started"):
        child.ask(interrupting, {}, seconds=60)


@pytest.mark.parametrize("printed", [b"", b'\n{"interru', b"nonsense\n"])
def test_half_a_reply_is_none(monkeypatch: pytest.MonkeyPatch, printed: bytes) -> None:
    done = subprocess.CompletedProcess([], -9, printed, b"")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(BackendUnavailableError, match="exit -9"):
        child.ask(interrupting, {}, seconds=60)
