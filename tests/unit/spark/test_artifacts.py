"""What travels to executors: the author's modules, Perago, and packages with compiled parts."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from perago.servers.toolchain.cache import Cache
from perago.spark import artifacts


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of tasks that imports a module next to it."""
    package = tmp_path / "tasks_of_test"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__pycache__" / "x.pyc").touch()
    (package / "__init__.py").touch()
    (package / "main.py").write_text("import beside_of_test\n")
    (package / "table.csv").write_text("a,b\n")
    (tmp_path / "beside_of_test.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("tasks_of_test.main")
    for name in ("tasks_of_test.main", "tasks_of_test", "beside_of_test"):
        # Removed again with the test.
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    return tmp_path


def test_the_author_s_package_and_what_lies_next_to_it_are_found(project: Path) -> None:
    found = artifacts.author_modules(["tasks_of_test.main:one"])
    assert project / "tasks_of_test" in found
    assert project / "beside_of_test.py" in found


def test_installed_modules_stay_where_they_are_unless_they_are_the_tasks() -> None:
    found = artifacts.author_modules([])
    assert not any("site-packages" in place.parts for place in found)
    named = artifacts.author_modules(["pydantic.main"])
    assert [place.name for place in named if "site-packages" in place.parts] == ["pydantic"]


def sent(project: Path, monkeypatch: pytest.MonkeyPatch, *data: str) -> set[str]:
    monkeypatch.setattr(artifacts, "_packages", lambda _: Path("unused"))
    made = artifacts.build_artifacts(["tasks_of_test.main"], project, data)
    return set(zipfile.ZipFile(made.modules).namelist())


def test_the_zip_holds_the_python_files_of_perago_and_of_the_author(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sent(project, monkeypatch)
    assert {"perago/__init__.py", "tasks_of_test/main.py", "beside_of_test.py"} <= names
    assert all(name.endswith(".py") for name in names)


def test_declared_data_is_sent_and_nothing_next_to_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sent(project, monkeypatch, "tasks_of_test/*.csv")
    assert "tasks_of_test/table.csv" in names
    assert all(name.endswith((".py", ".csv")) for name in names)


def test_no_dot_file_no_link_and_no_key_is_sent_whatever_is_declared(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = project / "tasks_of_test"
    elsewhere = project / "elsewhere"
    (elsewhere / "inner").mkdir(parents=True)
    (elsewhere / "inner" / "private.py").touch()
    (package / "linked").symlink_to(elsewhere)
    (package / "linked.py").symlink_to(elsewhere / "inner" / "private.py")
    (package / ".git").mkdir()
    (package / ".git" / "hook.py").touch()
    hidden = [".env", ".hidden.py", "server.pem", "server.KEY", "id_ed25519", "credentials.json"]
    hidden += ["prod.env", "client_secret.json", "keys.p12"]
    for name in hidden:
        (package / name).touch()
    names = sent(project, monkeypatch, "*")
    ours = {name for name in names if name.startswith("tasks_of_test/")}
    assert ours == {
        "tasks_of_test/__init__.py",
        "tasks_of_test/main.py",
        "tasks_of_test/table.csv",
    }


def test_the_archive_holds_compiled_packages_and_an_interpreter_and_is_made_once(
    tmp_path: Path,
) -> None:
    cache = Cache(tmp_path)
    archive = artifacts._packages(cache)
    with tarfile.open(archive) as packed:
        members = {member.name: member for member in packed.getmembers()}
    assert members["bin/python"].mode == 0o755
    tops = {name.split("/")[1] for name in members if name.startswith("lib/")}
    assert {"pydantic", "pydantic_core", "obstore", "httpcore", "psutil"} <= tops
    # The cluster's own: far too large to be sent with each session.
    assert not {"pyspark", "pandas", "pyarrow", "numpy"} & tops
    written = archive.stat().st_mtime_ns
    assert artifacts._packages(cache).stat().st_mtime_ns == written
