"""Progress: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from perago.progress import shown, transfer
from perago.testing import InMemoryLake
from perago.transfer.counted import CountedStore
from support.command_line import environment

SHOWN = """
from perago.progress import shown, transfer
with shown("build it", 2, "packages") as advance:
    advance(1)
with transfer("upload [red]", 2_000_000) as advance:
    advance(1_000_000)
with transfer("stage", None) as advance:
    advance(3_000_000)
print("over")
"""
_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9](;[0-9]+)*m")
# The seconds are those of a machine that may be busy.
_DONE = re.compile(r"build it: done in \d+ s")


def on_terminal(tmp_path: Path, variables: Mapping[str, str]) -> str:
    """What a person's terminal gets: all that the program writes to stderr."""
    ours, theirs = pty.openpty()
    given = {"TERM": "xterm-256color", "NO_COLOR": "", **variables}
    with subprocess.Popen(
        [sys.executable, "-c", SHOWN],
        cwd=tmp_path,
        env=environment(given),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        written = b""
        try:
            while piece := os.read(ours, 65536):
                written += piece
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(ours)
        assert process.wait(30) == 0
    return written.decode()


def test_a_terminal_gets_bars(tmp_path: Path) -> None:
    shown = on_terminal(tmp_path, {})
    assert _COLOUR.search(shown)
    plain = _STEERING.sub("", shown)
    assert "━" in plain
    assert "1/2" in plain
    # A title is text, and no markup.
    assert "upload [red]" in plain
    assert "1.0/2.0 MB" in plain
    assert _DONE.search(plain)


def test_no_colour_where_none_is_wanted(tmp_path: Path) -> None:
    shown = on_terminal(tmp_path, {"NO_COLOR": "1"})
    assert "━" in shown
    assert not _COLOUR.search(shown)


def test_a_terminal_that_can_only_print_lines_gets_lines(tmp_path: Path) -> None:
    begun, done = on_terminal(tmp_path, {"TERM": "dumb"}).splitlines()
    assert begun == "build it …"
    assert _DONE.fullmatch(done)


def test_elsewhere_a_step_is_two_lines_and_a_short_transfer_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with shown("build it", 2, "packages") as advance:
        advance(1)
    with transfer("upload", 10) as advance:
        advance(10)
    printed = capsys.readouterr()
    assert printed.out == ""
    begun, done = printed.err.splitlines()
    assert begun == "build it …"
    assert _DONE.fullmatch(done)


def test_elsewhere_a_long_transfer_is_told_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("perago.progress.time.monotonic", lambda: now[0])
    with transfer("upload", 900_000_000) as advance, transfer("stage", None) as other:
        for second, done in ((9, 100), (11, 200), (12, 300), (22, 400)):
            now[0] = second
            advance(done * 1_000_000)
        other(7_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "upload: 200 of 900 MB",
        "upload: 400 of 900 MB",
        "stage: 7 MB",
    ]


def test_an_error_in_a_step_is_not_called_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), shown("build it", 2, "packages"):
        raise ValueError("no")
    assert capsys.readouterr().err == "build it …\n"


def test_a_counted_store_tells_the_bytes_that_passed(tmp_path: Path) -> None:
    lake = InMemoryLake()
    told: list[int] = []
    lake.create_repository("repo")
    store = CountedStore(lake.objects, told.append)
    (tmp_path / "a").write_bytes(b"12345")
    for key in ("a", "b"):
        store.write("repo", "main", key, tmp_path / "a", content_type="", metadata={})
    assert told == [5, 10]
    assert b"".join(store.read("repo", "main", "a", 5)) == b"12345"
    assert told[-1] == 15
    assert [item.key for item in store.list("repo", "main", "")] == ["a", "b"]
    assert len(list(store.level("repo", "main", ""))) == 2
    store.delete("repo", "main", ["a"])
    assert [item.key for item in store.list("repo", "main", "")] == ["b"]


@pytest.mark.parametrize(("ending", "code"), [("raise SystemExit(143)", 143), ("advance(2)", 3)])
def test_a_terminal_that_is_closed_changes_no_exit_code(
    tmp_path: Path, ending: str, code: int
) -> None:
    ours, theirs = pty.openpty()
    # Within a bar, rich shows on the terminal what is printed to stdout.
    program = f"""
import sys
from perago.progress import transfer
with transfer("upload", 2_000_000) as advance:
    print("begun", flush=True, file=sys.__stdout__)
    sys.stdin.read()
    {ending}
raise SystemExit(3)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment({"TERM": "xterm-256color"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        os.close(ours)
        process.communicate(timeout=30)
        assert process.returncode == code
    finally:
        process.kill()
        process.wait(10)
