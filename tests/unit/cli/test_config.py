"""``perago config show``, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SECRET = "wJalrXUtnFEMI-example-secret"


def perago(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    base["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-m", "perago", *arguments],
        cwd=folder,
        env=base | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_each_value_is_shown_with_its_origin_and_a_secret_is_masked(tmp_path: Path) -> None:
    (tmp_path / ".lakectl.yaml").write_text(
        f"server: {{endpoint_url: http://lakefs}}\ncredentials: {{secret_access_key: {SECRET}}}\n"
    )
    (tmp_path / ".lakectl.yaml").chmod(0o600)
    done = perago(tmp_path, "config", "show", PERAGO_LOG_LEVEL="debug")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["PERAGO_LOG_LEVEL"] == ["debug", "environment"]
    assert rows["LAKECTL_SERVER_ENDPOINT_URL"] == ["http://lakefs", "~/.lakectl.yaml"]
    assert rows["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"] == ["********", "~/.lakectl.yaml"]
    assert rows["CONDUCTOR_SERVER_URL"] == ["-", "default"]
    assert SECRET not in done.stdout + done.stderr


def test_json_is_one_object_on_stdout_also_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "perago.toml").write_text(f'lakefs-secret-access-key = "{SECRET}"\n')
    (tmp_path / "perago.toml").chmod(0o644)
    done = perago(tmp_path, "config", "show", "--json", CONDUCTOR_SERVER_URL="http://c/api")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
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
    assert "chmod 600 perago.toml" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_wrong_values_end_with_exit_code_2_and_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "perago.toml").write_text("transfer-thread = 3\n")
    done = perago(tmp_path, "config", "show", PERAGO_LOG_LEVEL="loud", CONDUCTOR_AUTH_SECRET=SECRET)
    assert done.returncode == 2
    assert done.stdout == ""
    for expected in ("transfer-thread (perago.toml)", "PERAGO_LOG_LEVEL", "CONDUCTOR_AUTH_KEY"):
        assert expected in done.stderr
    assert SECRET not in done.stderr
    assert "Traceback" not in done.stderr
