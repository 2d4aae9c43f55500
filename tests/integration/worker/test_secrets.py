"""No credential in any log, task log, process list, result or exception."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from support.workers import TASK_MODULES, WorkerSite

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]


def test_the_secret_is_nowhere_to_be_seen(site: WorkerSite) -> None:
    secret = site.servers.connection.secret_access_key.get_secret_value()
    worker = site.start()
    arguments = [
        " ".join(process.cmdline())
        for pid in [worker.pid, *worker.executors()]
        for process in [psutil.Process(pid)]
    ]
    good, bad = site.workflow(), site.workflow(do="fail")
    tasks = [*site.finish(good), *site.finish(bad)]
    logs = [
        entry["log"]
        for task in tasks
        for entry in site.servers.http.get(f"/tasks/{task['taskId']}/log").json()
    ]
    assert worker.stop() == 0
    for text in [*arguments, *logs, *map(repr, tasks), worker.log_text()]:
        assert secret not in text
    assert any("Traceback" in log for log in logs), "there was something to look at"


def test_wrong_credentials_end_the_start_with_3_and_show_nothing(site: WorkerSite) -> None:
    wrong = "not-the-secret-at-all"
    environment = {**site.environment(), "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": wrong}
    ended = subprocess.run(
        [sys.executable, "-m", "perago", "start", "bodies", "--register"],
        cwd=TASK_MODULES,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 3
    assert "LakeFS could not check the credentials" in ended.stderr
    assert wrong not in ended.stderr + ended.stdout


def test_everything_missing_is_listed_at_once_with_2(site: WorkerSite) -> None:
    environment = {
        key: value
        for key, value in site.environment().items()
        if not key.startswith(("LAKECTL_", "CONDUCTOR_"))
    }
    environment["HOME"] = str(site.folder)
    ended = subprocess.run(
        [sys.executable, "-m", "perago", "start", "bodies"],
        cwd=TASK_MODULES,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    for name in (
        "LAKECTL_SERVER_ENDPOINT_URL",
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
        "CONDUCTOR_SERVER_URL",
    ):
        assert name in ended.stderr
    assert "Try: " in ended.stderr
