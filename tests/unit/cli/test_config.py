"""``perago config show``, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

from support.command_line import Ended, run_perago

SECRET = "wJalrXUtnFEMI-example-secret"


def perago(folder: Path, *arguments: str, **variables: str) -> Ended:
    return run_perago(*arguments, folder=folder, extra={"HOME": str(folder), **variables})


def test_each_value_is_shown_with_its_origin_and_a_secret_is_masked(tmp_path: Path) -> None:
    (tmp_path / ".lakectl.yaml").write_text(
        f"server: {{endpoint_url: http://lakefs}}\ncredentials: {{secret_access_key: {SECRET}}}\n"
    )
    (tmp_path / ".lakectl.yaml").chmod(0o600)
    done = perago(tmp_path, "config", "show", PERAGO_LOG_LEVEL="debug")
    assert done.code == 0, done.err
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
    assert rows["PERAGO_LOG_LEVEL"] == ["debug", "environment"]
    assert rows["LAKECTL_SERVER_ENDPOINT_URL"] == ["http://lakefs", "~/.lakectl.yaml"]
    assert rows["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"] == ["********", "~/.lakectl.yaml"]
    assert rows["CONDUCTOR_SERVER_URL"] == ["-", "default"]
    assert SECRET not in done.out + done.err


def test_json_is_one_object_on_stdout_also_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "perago.toml").write_text(f'lakefs-secret-access-key = "{SECRET}"\n')
    (tmp_path / "perago.toml").chmod(0o644)
    done = perago(tmp_path, "config", "show", "--json", CONDUCTOR_SERVER_URL="http://c/api")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    by_name = {item["name"]: item for item in shown["settings"]}
    assert by_name["conductor_server_url"] == {
        "name": "conductor_server_url",
        "variable": "CONDUCTOR_SERVER_URL",
        "value": "http://c/api",
        "origin": "environment",
    }
    assert by_name["lakefs_endpoint"]["value"] is None
    assert by_name["lakefs_secret_access_key"]["value"] == "********"
    assert len(shown["warnings"]) == 1
    assert "chmod 600 perago.toml" in done.err
    assert SECRET not in done.out + done.err


def test_wrong_values_end_with_exit_code_2_and_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "perago.toml").write_text("transfer-thread = 3\n")
    done = perago(tmp_path, "config", "show", PERAGO_LOG_LEVEL="loud", CONDUCTOR_AUTH_SECRET=SECRET)
    assert done.code == 2
    assert done.out == ""
    for expected in ("transfer-thread (perago.toml)", "PERAGO_LOG_LEVEL", "CONDUCTOR_AUTH_KEY"):
        assert expected in done.err
    assert SECRET not in done.err
    assert "Traceback" not in done.err
