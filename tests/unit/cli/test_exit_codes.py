from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago import errors
from perago.errors import PeragoError
from support.command_line import environment, run_code, run_perago, start_python

RAISING = """
import sys
from perago import cli, errors

@cli.app.command()
def fail() -> None:
    {body}

sys.argv = ["perago", "fail"]
cli.main()
"""
DOCTOR = "`perago doctor` checks the settings, the servers and this machine."


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens on: bound, so that nobody else takes it meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize(
    ("kind", "code", "points_to_doctor"),
    [
        (errors.PeragoError, 1, False),
        (errors.DefinitionError, 2, False),
        (errors.ConfigurationError, 2, True),
        (errors.SetupError, 2, True),
        (errors.MachineError, 1, True),
        (errors.ServerError, 3, True),
        (errors.BackendUnavailableError, 3, True),
        (errors.BackendDeniedError, 3, True),
        (errors.PublishFenceError, 4, False),
        (errors.StaleAttemptError, 4, False),
        (errors.UnknownOutcomeError, 5, False),
    ],
)
def test_an_error_ends_with_its_code_its_text_and_a_way_out(
    tmp_path: Path, kind: type[PeragoError], code: int, *, points_to_doctor: bool
) -> None:
    body = f"raise errors.{kind.__name__}('it went wrong')"
    ended = run_code(RAISING.format(body=body), folder=tmp_path)
    assert ended.code == code
    assert ended.out == ""
    assert ended.err.splitlines() == [
        f"{kind.code} {kind.__name__}: it went wrong",
        f"Try: {kind.hint}",
        *([DOCTOR] if points_to_doctor else []),
    ]


def test_an_exception_nobody_expected_is_a_bug_with_its_traceback(tmp_path: Path) -> None:
    ended = run_code(RAISING.format(body="{}['missing']"), folder=tmp_path)
    assert ended.code == 70
    assert ended.out == ""
    lines = ended.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "KeyError: 'missing'" in lines
    assert lines[-1].startswith("PRG-000 This is a bug in Perago (KeyError)")


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("open('.', 'w')", "'.': Is a directory"),
        ("open('/dev/null/x')", "'/dev/null/x': Not a directory"),
        (
            "raise PermissionError(13, 'Permission denied', b'/locked')",
            "'/locked': Permission denied",
        ),
    ],
)
def test_a_path_that_cannot_be_used_is_no_bug(tmp_path: Path, body: str, what: str) -> None:
    ended = run_code(RAISING.format(body=body), folder=tmp_path)
    assert ended.code == 2
    assert ended.err.splitlines()[:2] == [
        f"PRG-102 ConfigurationError: cannot use {what}",
        "Try: Name another path, or let this user read and write this one.",
    ]


def test_a_path_that_is_too_long_is_told_shortly(tmp_path: Path) -> None:
    ended = run_perago("init", f"{'a' * 3000}/shop", folder=tmp_path)
    assert ended.code == 2
    assert "File name too long" in ended.err
    assert max(map(len, ended.err.splitlines())) < 400


WAITING = RAISING.format(
    # A suite that runs in the background hands down an ignored SIGINT.
    body="""
    import signal, time
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print("waiting", flush=True)
        time.sleep(60)
    finally:
        print("cleaned up", flush=True)
"""
)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_a_command_after_its_cleanup(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with start_python("-c", WAITING, folder=tmp_path) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waiting\n"
            os.kill(process.pid, number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == code
    assert out == "cleaned up\n"
    assert "Traceback" not in err


def test_a_closed_terminal_is_told_of_twice_and_the_cleanup_goes_on(tmp_path: Path) -> None:
    """By the kernel, and by the shell."""
    body = """
    import os, signal
    try:
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        os.kill(os.getpid(), signal.SIGHUP)
        print("cleaned up", flush=True)
"""
    ended = run_code(RAISING.format(body=body), folder=tmp_path)
    assert (ended.code, ended.out) == (128 + signal.SIGHUP, "cleaned up\n")


def test_under_nohup_a_closed_terminal_does_not_matter(tmp_path: Path) -> None:
    body = """
    import os, signal
    os.kill(os.getpid(), signal.SIGHUP)
    print("goes on", flush=True)
"""
    deaf = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    ended = run_code(deaf + RAISING.format(body=body), folder=tmp_path)
    assert (ended.code, ended.out) == (0, "goes on\n")


NARRATING = """
    import os
    from perago.cli import output
    output.note("nobody reads this")
    assert os.open("/", os.O_RDONLY) > 2
    output.say("a result")
    raise errors.ServerError("it went wrong")
"""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_command_whose_messages_go_nowhere_does_its_work(tmp_path: Path, closed: str) -> None:
    """Closed numbers went to the next files; a line that could not be written ended the command."""
    code = RAISING.format(body=NARRATING)
    ended = subprocess.run(
        ["bash", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == errors.ServerError.exit_code
    assert ended.stdout == ("" if ">&-" in closed.split() else "a result\n")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["check"], ["check", "--bogus", "x"], ["fence", "status"]]
)
def test_wrong_usage_is_2(tmp_path: Path, arguments: list[str]) -> None:
    assert run_perago(*arguments, folder=tmp_path).code == 2


def test_help_is_0_for_every_command(tmp_path: Path) -> None:
    for command in ([], ["check"], ["extract"], ["register"], ["fence"], ["fence", "verify"]):
        ended = run_perago(*command, "--help", folder=tmp_path)
        assert (ended.code, ended.err) == (0, "")


def test_missing_settings_are_2_and_all_named(tmp_path: Path) -> None:
    ended = run_perago("fence", "status", "repo", folder=tmp_path)
    assert ended.code == 2
    assert "LAKECTL_SERVER_ENDPOINT_URL" in ended.err
    assert "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY" in ended.err


def test_a_server_that_does_not_listen_is_3_and_no_secret_is_shown(
    tmp_path: Path, closed_port: int
) -> None:
    settings = {
        "LAKECTL_SERVER_ENDPOINT_URL": f"http://127.0.0.1:{closed_port}",
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "some-key",
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "open-sesame",
        "CONDUCTOR_SERVER_URL": f"http://127.0.0.1:{closed_port}/api",
    }
    (tmp_path / "good.py").write_text(
        "from pydantic import BaseModel\nfrom perago import task\n"
        "class M(BaseModel): ...\n"
        "@task(name='good', owner_email='data@example.com')\n"
        "def good(params: M) -> M: ...\n"
    )
    for arguments in (["fence", "verify", "repo"], ["register", "good"]):
        ended = run_perago(*arguments, folder=tmp_path, extra=settings)
        assert ended.code == 3
        assert ended.err.startswith("PRG-601 BackendUnavailableError: ")
        assert "open-sesame" not in ended.out + ended.err
