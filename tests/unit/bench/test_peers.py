"""The peers: how they are called, what they are told, and what is said when they cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.errors import SetupError
from perago.servers.toolchain.cache import Cache
from perago.servers.toolchain.go_program import GoProgram
from perago.tasks.discover import load_tasks
from support.bench import attempts_way, peer_package, steps
from support.bench.bare_publish import shapes
from support.bench.movers import Folders, Lakectl, Rclone, fill, path_of
from support.bench.peers import Peer, lakefs_variables, look_for, run
from support.bench.rounds import PeerError
from support.go_programs import LAKECTL, RCLONE, VERSITYGW

CONNECTION = LakeFSConnection("http://127.0.0.1:1", "key", SecretStr("very-secret"))


def test_a_program_that_cannot_be_had_is_a_peer_with_a_reason() -> None:
    def refuse() -> Path:
        raise SetupError("no Go", hint="Install one.")

    peer = look_for(refuse)
    with pytest.raises(PeerError, match="no Go"):
        _ = peer.program
    assert look_for(lambda: Path("/bin/true")).program == "/bin/true"


def test_a_command_that_fails_says_why_without_addresses() -> None:
    fails = "import sys; print('error: no index at https://user:pass@example.com/x'); sys.exit(1)"
    with pytest.raises(PeerError) as caught:
        run([sys.executable, "-c", fails], {}, 30)
    assert "error: no index at …" in str(caught.value)
    assert "pass" not in str(caught.value)


def test_a_command_that_takes_too_long_is_ended() -> None:
    with pytest.raises(PeerError, match="not done after 0 s"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], {}, 0.2)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("note\nERROR: not found\nmore\n", "ERROR: not found"),
        ("first\nlast\n", "last"),
        ("\n", "no reason given"),
    ],
)
def test_the_line_that_tells_most(output: str, line: str) -> None:
    assert peer_package.telling_line(output) == line


def test_the_package_sees_neither_our_settings_nor_our_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PERAGO_OBJECT_CACHE", "ours")
    monkeypatch.setenv("PYTHONPATH", "ours")
    monkeypatch.setenv("HOME", "kept")
    found = peer_package.environment(lakefs_variables(CONNECTION), tmp_path)
    assert "PERAGO_OBJECT_CACHE" not in found
    assert found["PYTHONPATH"] == str(tmp_path)
    assert found["HOME"] == "kept"
    assert found["LAKECTL_SERVER_ENDPOINT_URL"] == CONNECTION.endpoint


def test_no_secret_is_an_argument() -> None:
    peer = Peer(Path("/bin/true"))
    for mover in (Lakectl(peer), Rclone(peer)):
        arguments = [*mover.upload("r/b/up/", Path("a")), *mover.download("r/c/up/", Path("b"))]
        assert not any("secret" in argument for argument in arguments)


def test_the_process_whose_memory_is_measured_loads_no_more_than_an_executor() -> None:
    heavy = "{'lakefs_sdk', 'conductor', 'pyspark', 'pyarrow', 'pytest', 'httpx'}"
    code = f"import {attempts_way.__name__}, sys; sys.exit(str({heavy} & sys.modules.keys() or ''))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert ran.stderr.strip() == ""


def test_both_products_run_one_module_whose_body_finds_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(tmp_path / "data", 501, 10)
    (tmp_path / "bench_module.py").write_text(steps._MODULE.format(name="bench_task"))
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = load_tasks(["bench_module"])
    assert found.name == "bench_task"
    params = found.params_model(count=501, size=20)
    assert found.function(folder, params).count == 501
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 501
    assert {path.stat().st_size for path in files} == {20}


def test_all_contestants_of_a_round_get_the_same_folder_and_the_next_round_another(
    tmp_path: Path,
) -> None:
    folders = Folders(tmp_path, 2, 3_000_000)
    first = folders(0)
    content = (first / path_of(1)).read_bytes()
    assert len(content) == 3_000_000
    assert folders(0) == first
    assert (first / path_of(1)).read_bytes() == content
    second = folders(1)
    assert not first.exists()
    assert (second / path_of(1)).read_bytes() != content


def test_requests_are_compared_by_what_they_ask_for() -> None:
    commit = "0123456789abcdef" * 4
    task = "01234567-89ab-cdef-0123-456789abcdef"
    assert shapes(
        [
            ("GET", f"/api/v1/repositories/repo-1/commits/{commit}?x=1"),
            ("POST", "/api/v1/repositories/repo-1/refs/perago-staging-a-b/merge/main"),
            ("GET", f"/api/tasks/{task}"),
        ]
    ) == [
        "GET /repositories/R/commits/COMMIT",
        "POST /repositories/R/refs/STAGING/merge/main",
        "GET /tasks/TASK",
    ]


@pytest.mark.parametrize("program", [LAKECTL, RCLONE, VERSITYGW], ids=lambda it: it.name)
def test_a_program_is_pinned_and_built_once(program: GoProgram, tmp_path: Path) -> None:
    assert program.hash.startswith("h1:")
    built: list[Path] = []

    class Recorded(GoProgram):
        def build(self, directory: Path) -> None:
            built.append(directory)
            (directory / self.name).touch()

    cache = Cache(tmp_path)
    found = [Recorded(**asdict(program)).obtain(cache) for _ in range(2)]
    assert found == [tmp_path / built[0].name.removesuffix(".partial") / program.name] * 2
    assert len(built) == 1
    assert program.version in found[0].parent.name
