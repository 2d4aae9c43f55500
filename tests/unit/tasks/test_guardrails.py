from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from perago import GuardrailViolation, forbid_glob, require_dir, require_file, require_glob
from perago.tasks.guardrails import Guardrail, check_folder, guardrail_problem
from support.definitions import no_warning
from support.trees import deep_folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name in ("raw/a.json", "raw/deep/b.json", "raw/.hidden", "note.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "guardrail",
    [
        require_file("note.txt"),
        require_file("raw/.hidden"),
        require_dir("raw"),
        require_dir("raw/deep/"),
        require_glob("raw/*.json"),
        require_glob("raw/**/*.json", 2, 2),
        require_glob("*.csv", min_count=0),
        forbid_glob("**/*.tmp"),
    ],
)
def test_a_guardrail_that_holds_says_nothing(workspace: Path, guardrail: Any) -> None:
    check_folder([guardrail], workspace, no_warning)


@pytest.mark.parametrize(
    ("guardrail", "text"),
    [
        (require_file("raw"), "required file is missing: raw"),
        (require_file("Note.txt"), "required file is missing: Note.txt"),
        (require_dir("empty"), "required folder is missing or empty: empty"),
        (require_dir("note.txt"), "required folder is missing or empty: note.txt"),
        (require_dir("ra"), "required folder is missing or empty: ra"),
        (require_glob("*.csv"), "'*.csv' matches 0 files, at least 1 required"),
        (require_glob("raw/**", 0, 2), "at most 2 allowed: raw/.hidden, raw/a.json"),
        (forbid_glob("*.txt"), "'*.txt' matches 1 files, at most 0 allowed: note.txt"),
    ],
)
def test_a_violation_says_what_is_missing_or_too_much(
    workspace: Path, guardrail: Any, text: str
) -> None:
    with pytest.raises(GuardrailViolation) as caught:
        check_folder([guardrail], workspace, no_warning)
    assert text in str(caught.value)


def test_an_authors_own_guardrail_gets_the_workspace_and_its_other_errors_pass_through(
    workspace: Path,
) -> None:
    def own(folder: Path) -> None:
        raise OSError(f"cannot look at {folder.name}")

    with pytest.raises(OSError, match=workspace.name):
        check_folder([own], workspace, no_warning)


def test_a_guardrail_that_only_warns_lets_the_others_run(workspace: Path) -> None:
    warnings: list[str] = []
    guardrails: list[Guardrail] = [
        require_file("missing", severity="warn"),
        require_dir("empty", severity="warn"),
        require_glob("*.csv", severity="warn"),
        forbid_glob("*.txt", severity="warn"),
        require_file("gone"),
    ]
    with pytest.raises(GuardrailViolation, match="required file is missing: gone"):
        check_folder(guardrails, workspace, warnings.append)
    assert warnings == [
        "required file is missing: missing",
        "required folder is missing or empty: empty",
        "'*.csv' matches 0 files, at least 1 required",
        "'*.txt' matches 1 files, at most 0 allowed: note.txt",
    ]


def test_the_first_violation_ends_the_check(workspace: Path) -> None:
    seen: list[Path] = []
    with pytest.raises(GuardrailViolation):
        check_folder([require_file("missing"), seen.append], workspace, no_warning)
    assert seen == []


def test_a_workspace_that_cannot_be_listed_does_not_count_as_empty(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_folder([forbid_glob("**")], tmp_path / "gone", no_warning)


def test_a_tree_deeper_than_python_recurses_is_listed(workspace: Path) -> None:
    with deep_folder(workspace, 1200):
        check_folder([require_glob("d/**/file")], workspace, no_warning)


def test_names_that_are_not_utf_8_give_a_text_that_can_be_posted(workspace: Path) -> None:
    (workspace / "caf\udce9").touch()
    with pytest.raises(GuardrailViolation) as caught:
        check_folder([forbid_glob("caf*")], workspace, no_warning)
    assert str(caught.value).encode().endswith(b": caf\\udce9")


def test_a_folder_is_listed_as_files_only_in_order_and_no_link_to_a_folder_is_entered(
    tmp_path: Path,
) -> None:
    for name in ("b/z", "b/a", "a/x/y", "a-file", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link-to-folder").symlink_to(tmp_path / "b")
    (tmp_path / "link-to-file").symlink_to(tmp_path / "c")
    with pytest.raises(GuardrailViolation) as caught:
        check_folder([require_glob("**", 0, 1)], tmp_path, no_warning)
    assert str(caught.value).endswith(": a-file, c, link-to-file, a/x/y, b/a, …")


async def _awaited(_workspace: Path) -> None: ...


def _two(_workspace: Path, _more: str) -> None: ...


def _none() -> None: ...


@pytest.mark.parametrize(
    ("guardrail", "text"),
    [
        (require_file, "require_file needs its argument"),
        (forbid_glob, "forbid_glob needs its argument"),
        (require_file("raw/*.json"), "write require_glob('raw/*.json')"),
        (require_file("/etc/passwd"), "write a relative path"),
        (require_file(""), "non-empty"),
        (require_dir("raw//"), "write a relative path"),
        (require_dir("/"), "non-empty"),
        (require_dir(7), "7"),  # type: ignore[arg-type]
        (require_glob("a**"), "'**' must be a whole segment"),
        (require_glob("a", -1), "0 <= min_count <= max_count"),
        (require_glob("a", 3, 2), "not 3 and 2"),
        (require_glob("a", None), "whole numbers"),  # type: ignore[arg-type]
        (require_glob("a", 1, "2"), "whole numbers"),  # type: ignore[arg-type]
        (require_glob("a", True), "whole numbers"),
        (require_file("a", severity="no"), "severity must be one of fail, warn, not 'no'"),  # type: ignore[arg-type]
        (require_glob("a", severity=None), "not None"),  # type: ignore[arg-type]
        ("raw/*.json", "is not a guardrail"),
        (_awaited, "write a plain function"),
        (_two, "takes the workspace and nothing else"),
        (_none, "takes the workspace and nothing else"),
    ],
)
def test_a_guardrail_that_would_never_work_is_a_problem(guardrail: object, text: str) -> None:
    assert text in (guardrail_problem(guardrail) or "")


@pytest.mark.parametrize(
    "guardrail",
    [
        require_file("data[1].csv"),
        require_file("odd[z-a].txt"),
        require_glob("raw/[a-z]*.json", 0),
        functools.partial(_two, _more="x"),
        lambda workspace: None,
        print,
    ],
)
def test_a_guardrail_that_works_is_no_problem(guardrail: object) -> None:
    assert guardrail_problem(guardrail) is None
