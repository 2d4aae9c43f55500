"""Tools that fail are explained in one sentence, and a broken download leaves nothing."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.errors import SetupError
from perago.servers import conductor, lakefs
from perago.servers.toolchain import tool
from perago.servers.toolchain.cache import Cache


def _run(folder: Path, program: str, seconds: float = 30.0) -> str:
    return tool.run(
        [sys.executable, "-c", program],
        what="fetch the moon",
        cwd=folder,
        log=folder / "tool.log",
        seconds=seconds,
        alternative="buy one",
    )


def test_what_a_tool_prints_is_returned_and_its_errors_are_logged(tmp_path: Path) -> None:
    assert _run(tmp_path, "import sys; print('out'); print('err', file=sys.stderr)") == "out\n"
    assert (tmp_path / "tool.log").read_text() == "err\n"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("write /x: no space left on device", "could not fetch the moon: the disk is full"),
        ("dial tcp: lookup moon: no such host", "could not fetch the moon, the download failed: "),
        ("PKIX path building failed", "could not fetch the moon, the certificate of the server"),
        ("syntax error at line 1", "could not fetch the moon: syntax error at line 1"),
    ],
)
def test_a_failure_is_one_sentence(said: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError) as caught:
        _run(tmp_path, f"import sys; sys.exit({said!r})")
    assert str(caught.value).startswith(expected)
    assert caught.value.hint


def test_a_tool_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="not done after"):
        _run(tmp_path, "import time; time.sleep(60)", seconds=0.3)


@pytest.fixture
def cutting_repository() -> Iterator[str]:
    """A Maven repository that promises much and hangs up after a few bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nPK")

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        # Closing alone does not wake up a thread that waits in accept.
        listener.shutdown(socket.SHUT_RDWR)


def test_a_cut_download_leaves_nothing_in_the_cache(
    cutting_repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_MAVEN_REPOSITORY", cutting_repository)
    monkeypatch.delenv("PERAGO_CONDUCTOR_JAR", raising=False)
    with pytest.raises(SetupError, match="could not fetch Conductor") as caught:
        conductor.find_or_fetch(Cache(tmp_path))
    assert "PERAGO_CONDUCTOR_JAR" in caught.value.hint
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_jar_that_is_not_the_released_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forged(*_: object, cwd: Path, **__: object) -> str:
        (cwd.parent / f"conductor-server-{conductor.VERSION}-boot.jar").write_bytes(b"PK")
        return ""

    monkeypatch.setattr(tool, "run", forged)
    monkeypatch.delenv("PERAGO_CONDUCTOR_JAR", raising=False)
    with pytest.raises(SetupError, match="is not what was released") as caught:
        conductor.find_or_fetch(Cache(tmp_path))
    assert f"conductor-server-{conductor.VERSION}-boot.jar: its hash is " in str(caught.value)
    assert "PERAGO_MAVEN_REPOSITORY" in caught.value.hint
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_the_variables_name_what_is_there_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_LAKEFS_BIN", sys.executable)
    monkeypatch.setenv("PERAGO_CONDUCTOR_JAR", __file__)
    assert lakefs.find_or_build(Cache(tmp_path)) == Path(sys.executable)
    assert conductor.find_or_fetch(Cache(tmp_path)) == Path(__file__)
    monkeypatch.setenv("PERAGO_LAKEFS_BIN", str(tmp_path / "missing"))
    monkeypatch.setenv("PERAGO_CONDUCTOR_JAR", str(tmp_path / "missing"))
    with pytest.raises(SetupError, match="PERAGO_LAKEFS_BIN"):
        lakefs.find_or_build(Cache(tmp_path))
    with pytest.raises(SetupError, match="PERAGO_CONDUCTOR_JAR"):
        conductor.find_or_fetch(Cache(tmp_path))
