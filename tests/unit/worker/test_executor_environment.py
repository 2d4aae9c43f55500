"""An author's module, imported by an executor, finds no secret in the environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from perago.worker.process import ExecutorProcess
from support.waiting import until

MODULE = """
import json, os, subprocess, sys
from pathlib import Path
from pydantic import BaseModel
from perago import task

class Nothing(BaseModel):
    pass

child = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
seen = subprocess.run(child, capture_output=True, check=True, text=True).stdout
Path("seen.json").write_text(json.dumps([dict(os.environ), json.loads(seen)]))

@task(name="t", owner_email="a@example.com")
def t(params: Nothing) -> Nothing:
    return Nothing()
"""
SECRETS = {
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "secret-of-lakefs",
    "CONDUCTOR_AUTH_SECRET": "secret-of-conductor",
    "SPARK_REMOTE": "sc://localhost:15002/;token=token-of-spark",
    **{
        f"PERAGO_SPARK_CONF_spark__hadoop__fs__{name}": "secret-of-a-cloud"
        for name in (
            "azure__account__key__shop__dfs__core__windows__net",
            "azure__sas__data__shop__blob__core__windows__net",
            "s3a__encryption__key",
            "gs__auth__service__account__private__key",
        )
    },
}


def test_a_body_and_its_children_see_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_test.py").write_text(MODULE)
    variables = {
        "LAKECTL_SERVER_ENDPOINT_URL": "http://127.0.0.1:1",
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "key",
        "CONDUCTOR_SERVER_URL": "http://127.0.0.1:1/api",
        "CONDUCTOR_AUTH_KEY": "key",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "HOME": str(tmp_path),
        **SECRETS,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    executor = ExecutorProcess(["module_of_test"])
    try:
        until(lambda: executor.is_ready(1.0), "the executor to be ready")
    finally:
        executor.kill()
    own, of_child = json.loads((tmp_path / "seen.json").read_text())
    for seen in (own, of_child):
        assert not SECRETS.keys() & seen.keys()
        assert not any("secret-of" in value or "token-of" in value for value in seen.values())
        assert seen["CONDUCTOR_SERVER_URL"] == "http://127.0.0.1:1/api"
