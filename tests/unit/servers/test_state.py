"""A data directory and its record are private, and a folder with other files is refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from perago.errors import SetupError
from perago.servers import state
from perago.servers.process import ProcessId

_PORTS = {"lakefs": 1001, "conductor": 1002, "spark": 1003}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _state(**changes: object) -> state.State:
    base = state.State(ephemeral=False, secrets=state.Secrets.random(), ports=_PORTS)
    return base.model_copy(update=changes)


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    directory = tmp_path / "stack"
    state.claim(directory)
    _state().save(directory)
    assert _mode(directory) == 0o700
    assert _mode(directory / "stack.json") == 0o600


def test_an_empty_folder_open_to_all_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    state.claim(tmp_path)
    assert _mode(tmp_path) == 0o700


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    tmp_path.chmod(0o755)
    with pytest.raises(SetupError, match=r"such as thesis\.tex"):
        state.claim(tmp_path)
    assert _mode(tmp_path) == 0o755


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    saved = _state(servers={"lakefs": ProcessId(1, 2.5)})
    saved.save(tmp_path)
    assert state.load(tmp_path) == saved


def test_no_record_is_no_state(tmp_path: Path) -> None:
    assert state.load(tmp_path) is None
    assert state.load(tmp_path / "missing") is None


def test_a_record_that_cannot_be_read_does_not_show_its_secrets(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text('{"secrets": {"spark_token": "hush"}}')
    with pytest.raises(SetupError) as caught:
        state.load(tmp_path)
    assert caught.value.__cause__ is None
    assert "hush" not in str(caught.value)


def test_the_record_of_another_user_is_not_taken_for_one_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(SetupError, match="this user may not read the record"):
        state.load(tmp_path)


def test_secrets_are_random_and_not_in_repr() -> None:
    one, other = _state(), _state()
    assert one.secrets != other.secrets
    hidden = [one.secrets.spark_token, one.secrets.lakefs.secret_access_key]
    shown = repr(one) + repr(one.endpoints) + repr(one.secrets.lakefs)
    assert not any(secret in shown for secret in hidden)


def test_endpoints_name_spark_only_when_it_runs() -> None:
    assert _state().endpoints.spark is None
    running = _state(servers={"spark": ProcessId(1, 2.5)})
    assert running.endpoints.spark is not None
    assert running.endpoints.spark.remote.startswith("sc://localhost:1003/;token=")
    assert running.endpoints.as_environment()["CONDUCTOR_SERVER_URL"] == "http://127.0.0.1:1002/api"
