from __future__ import annotations

from typing import Any

import pytest

from perago import WorkspaceSpec, require_file
from perago.protocol.names import ACTIONS_FOLDER


@pytest.mark.parametrize(
    ("prefix", "normal"),
    [
        ("/", ""),
        ("audio", "audio"),
        ("/audio/render/", "audio/render"),
        ("b\u00fccher", "b\u00fccher"),
        ("..audio", "..audio"),
        ("_lakefs_actions_of_mine", "_lakefs_actions_of_mine"),
    ],
)
def test_one_slash_at_either_end_of_a_prefix_is_dropped(prefix: str, normal: str) -> None:
    spec = WorkspaceSpec(prefix=prefix)
    assert list(spec.problems()) == []
    assert spec.normal_prefix == normal


@pytest.mark.parametrize(
    "prefix",
    [
        *("", "//", "//a", "a//", "a//b", "../a", "a/./b", "a\\b", "a\nb", "a\x7f", None, 3),
        *("_lakefs_actions", "/_lakefs_actions/x", ACTIONS_FOLDER),
    ],
)
def test_a_prefix_that_names_no_folder_is_a_problem(prefix: Any) -> None:
    assert list(WorkspaceSpec(prefix=prefix).problems())


@pytest.mark.parametrize("guardrails", ["raw", None, require_file("a"), {require_file("a")}])
def test_guardrails_must_come_as_a_list(guardrails: Any) -> None:
    (problem,) = WorkspaceSpec(pre=guardrails).problems()
    assert "WorkspaceSpec.pre must be a list of guardrails" in problem


def test_every_problem_of_a_spec_is_reported() -> None:
    bad: Any = WorkspaceSpec("../x", [require_file("")], [require_file, 4], read_only="no")  # type: ignore[arg-type, list-item]
    assert len(list(bad.problems())) == 5
