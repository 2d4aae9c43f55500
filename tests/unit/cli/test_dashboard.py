"""The dashboard as commands serve it: its address on stdout, its page while the command runs."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from perago.cli.dashboard import serve_dashboard
from perago.cli.dev import _serve_dashboard
from perago.dev import ConductorEndpoint, Endpoints, LakeFSEndpoint
from perago.settings import Settings
from support.command_line import run_perago

# Where nothing listens.
NOBODY = "http://127.0.0.1:1"


def opened(out: str) -> str:
    """Open the printed address; return the page."""
    name, url = out.split()
    assert name == "dashboard"
    with httpx.Client(timeout=20, follow_redirects=True, trust_env=False) as client:
        return client.get(url).raise_for_status().text


def test_the_address_is_printed_once_and_opens_while_the_block_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = Settings(conductor_server_url=f"{NOBODY}/api")
    with serve_dashboard(settings, [], port=0) as address:
        printed = capsys.readouterr().out
        page = opened(printed)
    assert "Conductor did not answer" in page
    # What may be logged has no token.
    assert printed.startswith(f"dashboard  {address}?token=")
    assert "token" not in address
    assert capsys.readouterr().err == ""


def test_as_json_the_address_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(conductor_server_url=f"{NOBODY}/api")
    with serve_dashboard(settings, [], port=0, as_json=True) as address:
        printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["schema", "dashboard"]
    assert printed["dashboard"].startswith(f"{address}?token=")


def test_the_page_of_a_stack_names_the_worker_that_it_would_ask(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERAGO_METRICS_ADDRESS", "127.0.0.1:2")
    endpoints = Endpoints(
        lakefs=LakeFSEndpoint(endpoint=NOBODY, access_key_id="key", secret_access_key="secret-7a"),
        conductor=ConductorEndpoint(server_url=f"{NOBODY}/api"),
    )
    with _serve_dashboard(endpoints, 0):
        page = opened(capsys.readouterr().out)
    assert "no worker at 127.0.0.1:2" in page
    assert "secret-7a" not in page


def test_settings_that_cannot_be_read_do_not_keep_a_stack_from_its_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perago.toml").write_text("not toml")
    endpoints = Endpoints(
        lakefs=LakeFSEndpoint(endpoint=NOBODY, access_key_id="key", secret_access_key="s"),
        conductor=ConductorEndpoint(server_url=f"{NOBODY}/api"),
    )
    with _serve_dashboard(endpoints, 0):
        assert "Overview" in opened(capsys.readouterr().out)


@pytest.mark.parametrize("command", [["start", "module"], ["dev", "up"]])
def test_a_port_that_is_none_is_refused(command: list[str], tmp_path: Path) -> None:
    done = run_perago(*command, "--ui-port", "70000", folder=tmp_path)
    assert done.code == 2
    assert "--ui-port" in done.err
