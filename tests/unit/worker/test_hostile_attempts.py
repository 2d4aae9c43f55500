"""Attempts that misbehave, on real executor processes: each ends itself and nothing else."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pytest

from perago.errors import NotFoundError
from perago.protocol.ports import Delivery
from perago.testing import TaskSettings
from perago.worker import slot as slot_module
from support.memory_worker import MemoryWorker, prepare_environment
from support.waiting import until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryWorker]:
    """One worker for all attempts: that it goes on is part of each test."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        prepare_environment(monkeypatch)
        with MemoryWorker(tmp_path_factory.mktemp("root")) as worker:
            yield worker


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MemoryWorker]:
    prepare_environment(monkeypatch)
    with MemoryWorker(tmp_path, executor_attempts=2) as worker:
        yield worker


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def running(pids: list[int]) -> list[int]:
    alive = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                alive.append(pid)
        except psutil.NoSuchProcess:
            continue
    return alive


def noted(file: Path) -> list[int]:
    until(file.exists, f"{file} to be written")
    return [int(line) for line in file.read_text().split()]


REASONS = {
    "mute": "Mute: <its text cannot be read",
    "nested": "ResultError: ",
    "surrogate": "ResultError: ",
    "large": "ResultError: the output has 200",
    "nan": "ResultError: ",
    "recurse": "RecursionError: ",
    "interrupt": "KeyboardInterrupt: ",
    "garbage": "ExecutorDiedError: ",
}


@pytest.mark.parametrize("do", REASONS)
def test_whatever_a_body_does_ends_its_attempt_with_a_reason(shared: MemoryWorker, do: str) -> None:
    task = shared.run(do)
    assert task.status == "FAILED"
    assert str(task.reason).startswith(REASONS[do])
    assert shared.run("", value="after").output == {"result": {"value": "after"}}


INPUTS = {
    "100 levels too many": nested(200),
    "a thousand levels": nested(1000),
    "a hundred thousand levels": nested(100_000),
    "a lone surrogate": "\ud800",
    "20 MB": "x" * 20_000_000,
}


@pytest.mark.parametrize("value", INPUTS.values(), ids=list(INPUTS))
def test_whatever_an_input_holds_ends_at_most_its_attempt(shared: MemoryWorker, value: Any) -> None:
    task = shared.run("", value=value)
    assert task.status == "FAILED"
    assert task.reason
    assert shared.run("", value="after").status == "COMPLETED"


@pytest.mark.parametrize("length", [201, 300, 10_000])
@pytest.mark.parametrize("char", ["x", "ä", "/"])
def test_a_task_id_that_is_too_long_for_a_file_name_fails_its_attempt(
    shared: MemoryWorker, monkeypatch: pytest.MonkeyPatch, length: int, char: str
) -> None:
    memory: Any = shared.conductor.memory
    with monkeypatch.context() as patched:
        numbers = chain([next(memory._numbers), char * length], memory._numbers)
        patched.setattr(memory, "_numbers", numbers)
        workflow = shared.begin("", value=1)
        task = shared.finish(workflow)
    assert len(task.attempt.task_id) > length
    assert task.status == "FAILED"
    assert str(task.reason).startswith("InputError: the task id has ")
    assert len(str(task.reason)) < 200
    assert shared.run("", value="after").status == "COMPLETED"


def test_a_large_input_within_bounds_is_carried_whole(shared: MemoryWorker) -> None:
    value = {"text": "ä😀" * 200_000, "deep": nested(50)}
    assert shared.run("", value=value).output == {"result": {"value": value}}


def test_a_surprise_in_the_supervisor_fails_the_attempt_and_the_slot_goes_on(
    shared: MemoryWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: Any) -> None:
        raise AttributeError("nobody expects this")

    with monkeypatch.context() as patched:
        patched.setattr(slot_module.RunningAttempt, "record", surprise)
        task = shared.run("pid")
    assert task.status == "FAILED"
    assert "AttributeError: nobody expects this" in str(task.reason)
    assert shared.run("", value="after").status == "COMPLETED"


def test_what_a_body_prints_and_logs_is_in_the_task_log(shared: MemoryWorker) -> None:
    log = "\n".join(shared.run("print", value="this").logs)
    for line in (
        "printed this",
        "to stderr",
        "WARNING authors.module: logged this",
        "from a child",
        "no line end",
    ):
        assert line in log
    assert "printed this" not in "\n".join(shared.run("").logs)


def test_what_a_thread_of_a_body_logs_carries_the_ids(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepare_environment(monkeypatch)
    # Started here, because an executor logs to what stderr is when it starts.
    with MemoryWorker(tmp_path) as worker:
        workflow = worker.begin("print", value="this")
        task = worker.finish(workflow)
    assert "WARNING authors.module: from a thread" in "\n".join(task.logs)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "{" in line]
    [line] = [line for line in lines if line.get("message") == "from a thread"]
    assert (line["workflow_id"], line["task_id"]) == (workflow, task.attempt.task_id)
    assert (line["task"], line["retry"]) == ("h_plain", 0)


def test_a_flood_of_output_is_bounded(shared: MemoryWorker) -> None:
    task = shared.run("flood")
    assert task.status == "COMPLETED"
    assert "line 19999" in "\n".join(task.logs)
    assert max(len(entry) for entry in task.logs) <= 20_000


def test_a_completed_attempt_leaves_no_process_behind(shared: MemoryWorker, tmp_path: Path) -> None:
    task = shared.run("leave", pids=str(tmp_path / "pids"))
    assert task.status == "COMPLETED"
    assert running(noted(tmp_path / "pids")) == []


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("exit", 3), ("raise", 1)])
def test_a_forked_child_that_comes_back_from_the_body_is_no_second_executor(
    own: MemoryWorker, how: str, code: int
) -> None:
    """Its outcome was taken for that of the attempt, and the attempt's for that of the next one."""
    task = own.run("fork", value=how)
    assert (task.status, task.output) == ("COMPLETED", {"result": {"value": code}})
    assert ("raised in the child" in "\n".join(task.logs)) == (how == "raise")
    assert own.run("", value="next").output == {"result": {"value": "next"}}


def test_a_child_that_was_forked_while_a_thread_sent_can_log(shared: MemoryWorker) -> None:
    task = shared.run("fork-while-sending")
    assert task.output == {"result": {"value": 0}}
    assert "logged by a child" in "\n".join(task.logs)


def test_executors_ignore_a_stop_and_the_programs_of_a_body_do_not(
    shared: MemoryWorker, tmp_path: Path
) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        pids = tmp_path / f"wait-{number}"
        workflow = shared.begin("wait", pids=str(pids), value="done")
        [executor] = noted(pids)
        warden = psutil.Process(executor).ppid()
        for pid in (executor, warden):
            os.kill(pid, number)
        assert shared.finish(workflow).output == {"result": {"value": "done"}}
    pids = tmp_path / "child"
    workflow = shared.begin("term-child", pids=str(pids))
    executor, child = noted(pids)
    os.kill(child, signal.SIGTERM)
    assert shared.finish(workflow).output == {"result": {"value": -signal.SIGTERM}}


def test_a_body_that_changes_signal_handlers_changes_them_for_itself_only(
    shared: MemoryWorker, tmp_path: Path
) -> None:
    shared.run("signals")
    pids = tmp_path / "pids"
    workflow = shared.begin("wait", pids=str(pids))
    [executor] = noted(pids)
    os.kill(executor, signal.SIGTERM)
    assert shared.finish(workflow).status == "COMPLETED"


def test_what_a_body_changes_of_its_process_is_gone_with_the_body(shared: MemoryWorker) -> None:
    before = shared.run("process").output["result"]["value"]
    changed = shared.run("change-process")
    assert (changed.status, changed.reason) == ("COMPLETED", None)
    assert shared.run("process").output["result"]["value"] == before
    assert any("printed again" in line for line in shared.run("print", value="again").logs)


def test_the_kernel_prefers_executors_when_memory_runs_out(shared: MemoryWorker) -> None:
    assert shared.run("oom").output == {"result": {"value": "500"}}


def test_an_executor_is_replaced_after_its_number_of_attempts(own: MemoryWorker) -> None:
    pids = [own.run("pid").output["result"]["value"] for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    assert running(pids[:1]) == []


def test_an_executor_that_dies_while_idle_costs_no_attempt(own: MemoryWorker) -> None:
    first = own.run("pid").output["result"]["value"]
    os.kill(first, signal.SIGKILL)
    until(lambda: not running([first]), "the executor to end")
    task = own.run("pid")
    assert task.status == "COMPLETED"
    assert task.output["result"]["value"] != first


def test_a_task_whose_definition_has_another_name_runs_as_the_polled_type(
    shared: MemoryWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shared.conductor.poll_batch

    def poll_batch(*given: Any, **options: Any) -> list[Delivery]:
        named = "a definition of another name"
        return [replace(delivery, task_type=named) for delivery in real(*given, **options)]

    monkeypatch.setattr(shared.conductor, "poll_batch", poll_batch)
    assert shared.run("", value=1).status == "COMPLETED"


def test_an_attempt_whose_task_is_gone_is_stopped_and_nothing_is_lost(
    own: MemoryWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def gone(task_id: str) -> Any:
        raise NotFoundError(f"Conductor has no task {task_id}")

    settings = TaskSettings("h_plain", retry_count=0, response_timeout_seconds=1.0)
    payload = {"params": {"do": "leave-and-wait", "pids": str(tmp_path / "pids")}}
    own.conductor.start(settings, payload)
    pids = noted(tmp_path / "pids")
    monkeypatch.setattr(own.conductor, "read", gone)
    until(lambda: own.slots[0].running is None, "the attempt to be stopped")
    assert running(pids) == []
    assert not own.context.lost.is_set()
    assert b'perago_lease_losses_total{task="h_plain"} 1.0' in own.context.metrics.render()
