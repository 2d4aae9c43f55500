"""Logs that stay when their server is gone, and do not grow without a bound."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perago.servers.kept_logs import KeptLogs, rotate


def test_each_start_has_a_log_of_its_own_in_a_private_folder(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "logs"
    logs = KeptLogs(folder, "spark")
    first, second = logs.begin(), logs.begin()
    assert first != second
    assert first.parent == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_oldest_logs_go_with_their_parts_and_other_files_stay(tmp_path: Path) -> None:
    logs = KeptLogs(tmp_path, "spark")
    (tmp_path / "notes.txt").touch()
    made = []
    for age in range(25):
        log = logs.begin()
        log.touch()
        log.with_name(f"{log.name}.1").touch()
        os.utime(log, (1000 + age, 1000 + age))
        made.append(log)
    left = {path.name for path in tmp_path.iterdir()}
    kept = {log.name for log in made[-20:]}
    assert left == {"notes.txt", *kept, *(f"{name}.1" for name in kept)}


def test_a_large_log_is_begun_anew_while_its_server_writes(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with log.open("ab", buffering=0) as server:
        for number in range(6):
            server.write(f"{number}{'x' * 20}\n".encode())
            rotate(log, largest=20)
        server.write(b"small\n")
        rotate(log, largest=20)
    assert log.read_text() == "small\n"
    parts = [log.with_name(f"spark.log.{number}") for number in (1, 2, 3)]
    assert [part.read_text()[0] for part in parts] == ["5", "4", "3"]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_log_that_is_not_there_yet_is_no_error(tmp_path: Path) -> None:
    rotate(tmp_path / "spark.log", largest=0)
    assert list(tmp_path.iterdir()) == []
