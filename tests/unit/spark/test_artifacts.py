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


def test_the_zip_holds_perago_and_whole_packages_without_compiled_python(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "_packages", lambda _: Path("unused"))
    made = artifacts.build_artifacts(["tasks_of_test.main"], project)
    names = set(zipfile.ZipFile(made.modules).namelist())
    wanted = {"perago/__init__.py", "tasks_of_test/main.py", "tasks_of_test/table.csv"}
    assert wanted | {"beside_of_test.py"} <= names
    assert not any("__pycache__" in name for name in names)


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
