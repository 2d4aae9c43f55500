"""Which modules travel to executors: Perago's, the author's, and what these import."""

from __future__ import annotations

import ast
import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.spark.modules import author_modules, module_files


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of tasks that imports a module next to it."""
    package = tmp_path / "tasks_of_test"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__pycache__" / "x.pyc").touch()
    (package / "__init__.py").touch()
    (package / "main.py").write_text("import beside_of_test\n")
    (package / "table.csv").write_text("a,b\n")
    (tmp_path / "beside_of_test.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("tasks_of_test.main")
    yield tmp_path
    for name in ("tasks_of_test.main", "tasks_of_test", "beside_of_test"):
        del sys.modules[name]


def test_the_author_s_package_and_what_lies_next_to_it_are_found(project: Path) -> None:
    found = author_modules(["tasks_of_test.main:one"])
    assert project / "tasks_of_test" in found
    assert project / "beside_of_test.py" in found


def test_what_a_function_imports_is_found_before_the_function_runs(project: Path) -> None:
    (project / "tasks_of_test" / "later.py").write_text(
        "def body():\n    import later_of_test\n    from far_of_test.inner import x\n"
    )
    (project / "later_of_test.py").write_text("import json, last_of_test\n")
    (project / "last_of_test.py").write_text("this is not Python\n")
    (project / "far_of_test").mkdir()
    (project / "far_of_test" / "__init__.py").write_text("from . import unused_of_test\n")
    (project / "unused_of_test.py").touch()
    importlib.invalidate_caches()
    found = author_modules(["tasks_of_test.main:one"])
    names = {place.name for place in found if place.is_relative_to(project)}
    assert names == {
        *("tasks_of_test", "beside_of_test.py"),
        *("later_of_test.py", "last_of_test.py", "far_of_test"),
    }
    assert "later_of_test" not in sys.modules


def test_a_module_that_changed_is_read_again(project: Path) -> None:
    (project / "later_of_test.py").touch()
    importlib.invalidate_caches()
    main = project / "tasks_of_test" / "main.py"
    assert project / "later_of_test.py" not in author_modules([])
    main.write_text("import beside_of_test\n\ndef body():\n    import later_of_test\n")
    assert project / "later_of_test.py" in author_modules([])


def test_a_parser_that_another_thread_disturbed_is_asked_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without an end: all that this process has loaded, and is not installed, is parsed.
    parse, tries = ast.parse, itertools.count()

    def disturbed(text: bytes) -> ast.Module:
        if next(tries) % 3 < 2:
            raise SystemError("AST constructor recursion depth mismatch (before=54, after=47)")
        return parse(text)

    (project / "later_of_test.py").write_text("")
    (project / "tasks_of_test" / "main.py").write_text("def body():\n    import later_of_test\n")
    importlib.invalidate_caches()
    # Only meanwhile: pytest parses the source of a test that fails.
    with monkeypatch.context() as patched:
        patched.setattr(ast, "parse", disturbed)
        found = author_modules(["tasks_of_test.main"])
    assert project / "later_of_test.py" in found


def test_installed_modules_stay_where_they_are_unless_they_are_the_tasks(project: Path) -> None:
    (project / "tasks_of_test" / "later.py").write_text("import pyspark, absent_of_test\n")
    found = author_modules([])
    assert not any("site-packages" in place.parts for place in found)
    # Not what it imports: that is installed here, and the cluster's own there.
    named = author_modules(["pydantic.main"])
    assert [place.name for place in named if "site-packages" in place.parts] == ["pydantic"]


def sent(*data: str) -> set[str]:
    return set(module_files(["tasks_of_test.main"], data))


@pytest.mark.usefixtures("project")
def test_the_python_files_of_perago_and_of_the_author_are_sent() -> None:
    names = sent()
    assert {"perago/__init__.py", "tasks_of_test/main.py", "beside_of_test.py"} <= names
    assert all(name.endswith(".py") for name in names)


@pytest.mark.usefixtures("project")
def test_declared_data_is_sent_and_nothing_next_to_it() -> None:
    names = sent("tasks_of_test/*.csv")
    assert "tasks_of_test/table.csv" in names
    assert all(name.endswith((".py", ".csv")) for name in names)


def test_no_dot_file_no_link_and_no_key_is_sent_whatever_is_declared(project: Path) -> None:
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
    ours = {name for name in sent("*") if name.startswith("tasks_of_test/")}
    assert ours == {
        "tasks_of_test/__init__.py",
        "tasks_of_test/main.py",
        "tasks_of_test/table.csv",
    }
