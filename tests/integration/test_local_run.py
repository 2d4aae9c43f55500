"""``perago run``: on a folder, and as a transaction on the real LakeFS; every exit code."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lakefs_sdk
import pytest

from support.command_line import Ended, RunPerago, run_perago
from support.gate import Gate, gate_before
from support.real_world import SEED, RealWorld
from support.waiting import end
from support.workers import TASK_MODULES

TASKS = TASK_MODULES / "local_tasks.py"
Running = subprocess.Popen[str]
Start = Callable[..., Running]


@pytest.fixture(autouse=True)
def _tasks_in_the_current_folder(tmp_path: Path) -> None:
    shutil.copy(TASKS, tmp_path / "tasks_here.py")


@pytest.fixture
def offline(tmp_path: Path) -> RunPerago:
    """Run ``perago`` with no server configured."""

    def run(*args: str) -> Ended:
        return run_perago(*args, folder=tmp_path, extra={"HOME": str(tmp_path)})

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    made.mkdir()
    (made / "a.txt").write_text("old")
    return made


def params(**values: str) -> str:
    return json.dumps(values)


# On a folder


def test_a_task_runs_on_a_folder_in_place(offline: RunPerago, folder: Path) -> None:
    done = offline("run", "tasks_here:writer", "--workspace", str(folder), "--params", "{}")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"workspace": str(folder), "result": {"length": 3}}
    assert (folder / "a.txt").read_text() == "new"


def test_params_come_from_a_file_too(offline: RunPerago, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(params(text="from a file"))
    done = offline(
        "run", "tasks_here:writer", "--workspace", str(folder), "--params", "@params.json"
    )
    assert json.loads(done.out)["result"] == {"length": 11}


def test_a_task_without_a_workspace_needs_no_option(offline: RunPerago) -> None:
    done = offline("run", "tasks_here:adder", "--params", params(text="four"))
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"result": {"length": 4}}


def test_what_the_body_prints_does_not_mix_with_the_result(
    offline: RunPerago, folder: Path
) -> None:
    done = offline(
        "run", "tasks_here:writer", "--workspace", str(folder), "--params", params(do="print")
    )
    assert json.loads(done.out)["result"] == {"length": 3}
    assert "noise from python" in done.err
    assert "noise from a child" in done.err


def test_the_folder_of_a_read_only_task_is_not_protected_and_that_is_said(
    offline: RunPerago, folder: Path
) -> None:
    done = offline("run", "tasks_here:reader", "--workspace", str(folder))
    assert done.code == 0
    assert "does not protect the folder" in done.err
    assert (folder / "a.txt").read_text() == "new"


def test_a_task_with_inputs_does_not_run_on_a_folder(offline: RunPerago, folder: Path) -> None:
    done = offline("run", "tasks_here:joiner", "--workspace", str(folder))
    assert done.code == 2
    assert "has inputs from LakeFS" in done.err


@pytest.mark.parametrize(
    ("do", "reason", "code"),
    [
        ("fail", "TaskFailed: not today", "PRG-301"),
        ("terminal", "TaskTerminalError: not ever", "PRG-302"),
        ("bug", "KeyError: 'missing'", "Traceback"),
        ("exit", "the task body called sys.exit(7)", "PRG-303"),
        ("wrong", "the result does not fit", "PRG-305"),
        ("remove", "PostGuardrailViolation: required file is missing: a.txt", "PRG-212"),
        ("link", "workspace publication does not support symlinks: link", "PRG-401"),
    ],
)
def test_a_task_that_fails_ends_with_1_and_says_why(
    offline: RunPerago, folder: Path, do: str, reason: str, code: str
) -> None:
    done = offline(
        "run", "tasks_here:writer", "--workspace", str(folder), "--params", params(do=do)
    )
    assert (done.code, done.out) == (1, "")
    assert reason in done.err
    assert code in done.err
    assert "Try: " in done.err or do == "bug"


def test_a_folder_that_breaks_the_pre_guardrails_fails(offline: RunPerago, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = offline("run", "tasks_here:writer", "--workspace", "empty")
    assert done.code == 1
    assert "PRG-211 PreGuardrailViolation: required file is missing: a.txt" in done.err


def test_params_that_do_not_fit_the_model_fail(offline: RunPerago) -> None:
    done = offline("run", "tasks_here:adder", "--params", '{"text": 5}')
    assert done.code == 1
    assert "PRG-201 InputError: params: text" in done.err


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["tasks_here"], "several tasks"),
        (["tasks_here:writer"], "needs a workspace"),
        (["tasks_here:writer", "--repository", "r"], "together"),
        (["tasks_here:writer", "--workspace", ".", "--repository", "r"], "either"),
        (["tasks_here:writer", "--workspace", "nowhere"], "does not exist"),
        (["tasks_here:adder", "--workspace", "."], "takes no workspace"),
        (["tasks_here:adder", "--params", "{"], "not JSON"),
        (["tasks_here:adder", "--params", "[]"], "JSON object"),
        (["tasks_here:adder", "--params", "@nowhere.json"], "cannot read"),
        (["tasks_here:nothing"], "PRG-101"),
        (["tasks_here:writer", "--repository", "r", "--branch", "b"], "LAKECTL_"),
    ],
)
def test_a_command_that_cannot_work_ends_with_2(
    offline: RunPerago, args: list[str], text: str
) -> None:
    done = offline("run", *args)
    assert (done.code, done.out) == (2, "")
    assert text in " ".join(done.err.replace("│", " ").split())


# As a transaction


@pytest.mark.servers
class TestTransaction:
    """Against the real LakeFS."""

    @pytest.fixture
    def start(
        self, world: RealWorld, environment: dict[str, str], tmp_path: Path
    ) -> Iterator[Start]:
        """Start ``perago run`` as a transaction of this world."""
        started: list[Running] = []

        def run(name: str = "writer", *, lakefs: str = "", **given: str) -> Running:
            where = {"LAKECTL_SERVER_ENDPOINT_URL": lakefs} if lakefs else {}
            command = ["run", f"tasks_here:{name}", "--params", params(**given)]
            command += ["--repository", world.repository, "--branch", "main"]
            process = subprocess.Popen(
                [sys.executable, "-m", "perago", *command],
                cwd=tmp_path,
                env={**environment, "CONDUCTOR_SERVER_URL": "", **where},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.append(process)
            return process

        yield run
        for process in started:
            end(process)

    @pytest.fixture
    def gate(self, world: RealWorld) -> Iterator[Gate]:
        with gate_before(world.servers.connection.server) as gate:
            yield gate

    def test_the_result_is_published_on_the_head_of_the_branch(
        self, world: RealWorld, start: Start
    ) -> None:
        process = start()
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        head, before, *_ = world.history()
        assert before == world.ref
        assert json.loads(out) == {
            "workspace": world.workspace(ref=head),
            "result": {"length": 3},
        }
        assert world.contents() == {**SEED, "data/a.txt": "new"}
        world.assert_tidy()

    def test_inputs_are_taken_from_the_heads_of_their_branches_and_warnings_are_shown(
        self, world: RealWorld, start: Start, environment: dict[str, str]
    ) -> None:
        creation = lakefs_sdk.BranchCreation(name="side", source="main")
        world.sdk.branches_api.create_branch(world.repository, creation)
        side = world.commit("side", {"data/a.txt": "from the side"})
        environment["OTHER_REPOSITORY"] = world.repository
        process = start("joiner")
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert world.contents()["data/a.txt"] == "from the side"
        assert "warning: required file is missing: never.txt" in err
        recorded = world.control.get_head(world.repository, "main").metadata
        assert json.loads(recorded["perago.inputs"])["other"]["ref"] == side
        assert json.loads(recorded["perago.warnings"]) == ["required file is missing: never.txt"]

    def test_a_task_that_changes_nothing_publishes_nothing(
        self, world: RealWorld, start: Start
    ) -> None:
        process = start(do="nothing")
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert json.loads(out)["workspace"]["ref"] == world.ref
        world.assert_untouched()
        world.assert_tidy()

    def test_a_task_that_fails_publishes_nothing(self, world: RealWorld, start: Start) -> None:
        process = start(do="fail")
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "PRG-301 TaskFailed: not today" in err
        world.assert_untouched()
        world.assert_tidy()

    @pytest.mark.parametrize(
        ("do", "commits"),
        [
            ("write", 2),
            ("nothing", 1),
            pytest.param("write", 1, marks=pytest.mark.slow),
            pytest.param("nothing", 2, marks=pytest.mark.slow),
        ],
    )
    def test_a_target_that_moved_meanwhile_is_left_alone_and_the_run_ends_with_4(
        self, world: RealWorld, start: Start, tmp_path: Path, do: str, commits: int
    ) -> None:
        go = tmp_path / "go"
        process = start(do=do, wait_for=str(go))
        until(tmp_path / "go.waiting", process)
        moved = [world.commit("main", {"data/person.txt": str(n)}) for n in range(commits)]
        go.touch()
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (4, "")
        assert "PRG-502 PublishFenceError" in err
        assert world.history()[0] == moved[-1]
        assert world.tags() == {}
        world.assert_tidy()

    def test_a_repository_that_is_not_there_ends_with_3(self, perago: RunPerago) -> None:
        options = ["--repository", "no-such-repository", "--branch", "main"]
        done = perago("run", "tasks_here:writer", *options)
        assert done.code == 3
        assert "PRG-604" in done.err

    def test_a_server_that_does_not_answer_ends_with_3(self, start: Start) -> None:
        process = start(lakefs="http://127.0.0.1:1")
        _, err = process.communicate(timeout=60)
        assert process.returncode == 3
        assert "PRG-601" in err

    def test_a_merge_whose_reply_is_lost_and_that_did_not_land_ends_with_3(
        self, world: RealWorld, start: Start, gate: Gate
    ) -> None:
        gate.hold("/merge/")
        process = start(lakefs=gate.url)
        out, err = process.communicate(timeout=90)
        assert (process.returncode, out) == (3, "")
        assert "PRG-505 NotPublishedError" in err
        assert world.branches() == {"main"}
        assert [tag.startswith("perago-withdrawn-") for tag in world.tags()] == [True]
        assert list(world.root.iterdir()) == []

    def test_ctrl_c_in_the_body_stops_it(
        self, world: RealWorld, start: Start, tmp_path: Path
    ) -> None:
        process = start(wait_for=str(tmp_path / "never"))
        until(tmp_path / "never.waiting", process)
        assert_stopped(process, world, signal.SIGINT)

    def test_sigterm_stops_it_as_well(self, world: RealWorld, start: Start, tmp_path: Path) -> None:
        process = start(wait_for=str(tmp_path / "never"))
        until(tmp_path / "never.waiting", process)
        assert_stopped(process, world, signal.SIGTERM)

    @pytest.mark.parametrize(
        "request_line",
        [
            r"POST \S+perago-staging\S+/objects\?",
            pytest.param(r"GET \S+/objects\?path=data%2Fa\.txt", marks=pytest.mark.slow),
            pytest.param(r"POST \S+/commits", marks=pytest.mark.slow),
        ],
    )
    def test_ctrl_c_in_a_request_leaves_no_branch_and_no_folder(
        self, world: RealWorld, start: Start, gate: Gate, request_line: str
    ) -> None:
        gate.hold(request_line)
        process = start(lakefs=gate.url)
        assert gate.reached.wait(60)
        process.send_signal(signal.SIGINT)
        gate.release()
        assert_stopped(process, world)

    def test_a_second_ctrl_c_does_not_stop_the_cleaning_up(
        self, world: RealWorld, start: Start, gate: Gate
    ) -> None:
        gate.hold(r"POST \S+/commits")
        process = start(lakefs=gate.url)
        assert gate.reached.wait(60)
        gate.hold(r"DELETE \S+/branches/")
        process.send_signal(signal.SIGINT)
        assert gate.reached.wait(60)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert any("already stopping" in line for line in process.stderr)
        gate.release()
        assert_stopped(process, world)

    def test_ctrl_c_while_publishing_lets_the_run_end_with_its_result(
        self, world: RealWorld, start: Start, gate: Gate
    ) -> None:
        gate.hold("/merge/")
        process = start(lakefs=gate.url)
        assert gate.reached.wait(60)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert any("publishing, which is not broken off" in line for line in process.stderr)
        gate.release()
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert json.loads(out)["workspace"]["ref"] == world.history()[0] != world.ref
        world.assert_tidy()


def until(marker: Path, process: Running) -> None:
    deadline = time.monotonic() + 60
    while not marker.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def assert_stopped(
    process: Running, world: RealWorld, number: signal.Signals | None = None
) -> None:
    """The run ends with 128 and the signal's number, and has left nothing."""
    if number is not None:
        process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + (number or signal.SIGINT), ""), err
    assert "Traceback" not in err
    world.assert_untouched()
    world.assert_tidy()
