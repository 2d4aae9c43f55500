"""The commands, where no server is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import run_perago

_FORBIDDEN = (
    "pyspark",
    "lakefs_sdk",
    "conductor",
    "rich.progress",
    "perago.dev",
    "perago.servers",
    "perago.dashboard",
    "starlette",
    "uvicorn",
    "jinja2",
    "psutil",
)


@pytest.mark.parametrize("arguments", [["--help"], ["dev", "--help"]])
def test_help_imports_neither_pyspark_nor_an_sdk(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from perago.cli import app\n"
        f"app({arguments!r}, standalone_mode=False)\n"
        f"print([name for name in {_FORBIDDEN!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"


def test_status_of_nothing_says_off_and_exits_with_3(tmp_path: Path) -> None:
    done = run_perago("dev", "status", "--json", "--data-dir", str(tmp_path), folder=tmp_path)
    assert done.code == 3
    servers = json.loads(done.out)["servers"]
    assert {(server["name"], server["health"]) for server in servers} == {
        ("lakefs", "off"),
        ("conductor", "off"),
        ("spark", "off"),
    }


def test_env_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    done = run_perago("dev", "env", "--data-dir", str(tmp_path), folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "no stack runs in" in done.err
    assert "perago dev up" in done.err


def test_down_of_nothing_is_no_error(tmp_path: Path) -> None:
    done = run_perago("dev", "down", "--data-dir", str(tmp_path / "missing"), folder=tmp_path)
    assert done.code == 0
    assert not (tmp_path / "missing").exists()


def test_logs_of_nothing_says_so(tmp_path: Path) -> None:
    done = run_perago("dev", "logs", "lakefs", "--data-dir", str(tmp_path), folder=tmp_path)
    assert (done.code, done.out) == (0, "")
    assert "lakefs has no log" in done.err


def test_up_refuses_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    done = run_perago("dev", "up", "--data-dir", str(tmp_path), folder=tmp_path)
    assert done.code == 2
    assert "PRG-103" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
