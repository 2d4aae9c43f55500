"""The memory that a process may use: the machine's, or its control group's."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago.servers import memory
from perago.servers.memory import GIB, MIB, control_group_limits, read_size, write_size


def limits(folder: Path, groups: str, files: dict[str, str]) -> list[int]:
    proc = folder / "cgroup"
    proc.write_text(groups)
    for name, text in files.items():
        file = folder / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return list(control_group_limits(proc, folder / "fs"))


def test_a_group_of_version_2_has_its_own_limit_and_those_above_it(tmp_path: Path) -> None:
    files = {"a/b/memory.max": "3000\n", "a/memory.max": "2000\n", "memory.max": "max\n"}
    assert limits(tmp_path, "0::/a/b\n", files) == [3000, 2000]


def test_a_container_that_sees_its_group_as_the_root_has_the_root_s_limit(tmp_path: Path) -> None:
    assert limits(tmp_path, "0::/docker/x\n", {"memory.max": "2000"}) == [2000]


def test_a_group_of_version_1_is_the_one_of_the_memory_controller(tmp_path: Path) -> None:
    groups = "7:cpu,cpuacct:/x\n5:memory:/y\n1:name=systemd:/z\n"
    files = {"memory/y/memory.limit_in_bytes": "1500", "cpu/x/memory.limit_in_bytes": "1"}
    assert limits(tmp_path, groups, files) == [1500]


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert list(control_group_limits(tmp_path / "none", tmp_path)) == []
    assert limits(tmp_path, "nonsense\n\n0::/a\n", {}) == []


def test_the_lowest_of_all_limits_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "control_group_limits", lambda *_: iter([1 << 60, 5 * MIB]))
    assert memory.usable_memory() == 5 * MIB
    monkeypatch.setattr(memory, "control_group_limits", lambda *_: iter([1 << 60]))
    assert 0 < memory.usable_memory() < 1 << 60


@pytest.mark.parametrize(
    ("text", "size"),
    [("1g", GIB), ("512M", 512 * MIB), ("2048", 2 * GIB), ("1024kb", MIB), ("much", None)],
)
def test_sizes_are_read_as_spark_reads_them(text: str, size: int | None) -> None:
    assert read_size(text) == size


def test_sizes_are_written_in_whole_mebibytes() -> None:
    assert write_size(GIB + MIB + 17) == "1025m"
    assert read_size(write_size(3 * GIB)) == 3 * GIB
