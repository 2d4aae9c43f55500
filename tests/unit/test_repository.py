"""The files around the code: CI, hooks, templates, changelog, security policy."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
CATEGORIES = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def parsed(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(text("pyproject.toml"))["project"]
    return found


def make_recipe(target: str) -> list[str]:
    """The commands of a make target, with its variables filled in."""
    _, found, rest = text("Makefile").partition(f"\n{target}:")
    assert found
    lines = rest.splitlines()[1:]
    recipe = []
    for line in lines:
        if not line.startswith("\t"):
            break
        recipe.append(line.strip().lstrip("@").replace("$(BIN)", ".venv/bin"))
    return recipe


# CI


def jobs() -> list[dict[str, Any]]:
    return list(parsed(WORKFLOW)["jobs"].values())


def test_the_workflow_runs_on_every_push_to_main_and_every_pull_request() -> None:
    # YAML 1.1 reads the key `on` as a boolean.
    triggers = parsed(WORKFLOW)[True]
    assert triggers["push"]["branches"] == ["main"]
    assert "pull_request" in triggers


def test_the_workflow_runs_the_checks_and_the_tests_on_every_supported_python() -> None:
    (job,) = jobs()
    assert job["strategy"]["matrix"]["python"] == PYTHONS
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands.index("make check") < commands.index("make test")
    set_up = [step for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert [step["with"]["python-version"] for step in set_up] == ["${{ matrix.python }}"]


def test_the_oldest_python_of_the_workflow_is_the_oldest_that_the_package_supports() -> None:
    assert project()["requires-python"] == f">={PYTHONS[0]}"


def test_the_workflow_caches_packages_and_servers() -> None:
    (job,) = jobs()
    cached = [step["with"]["path"] for step in job["steps"] if "cache@" in step.get("uses", "")]
    for variable in ("PIP_CACHE_DIR", "PERAGO_CACHE"):
        assert job["env"][variable].removeprefix("${{ github.workspace }}/") in cached


def test_the_workflow_has_no_more_rights_than_reading_and_needs_no_other_server() -> None:
    workflow = parsed(WORKFLOW)
    assert workflow["permissions"] == {"contents": "read"}
    for job in jobs():
        assert "services" not in job
        assert "container" not in job
        assert "permissions" not in job
    assert "secrets." not in text(".github/workflows/ci.yml")


def test_the_workflow_calls_only_targets_that_the_makefile_has() -> None:
    called = re.findall(r"^\s*run: make (\w+)$", text(".github/workflows/ci.yml"), re.MULTILINE)
    assert {"check", "test"} <= set(called)
    for target in called:
        assert re.search(rf"^{target}:", text("Makefile"), re.MULTILINE)


# Hooks


def test_the_hooks_are_exactly_the_commands_of_make_check() -> None:
    config = parsed(ROOT / ".pre-commit-config.yaml")
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == make_recipe("check")
    for hook in hooks:
        assert hook["language"] == "system"
        assert hook["pass_filenames"] is False


# Templates


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda file: file.name)
def test_an_issue_template_is_a_form_or_the_configuration_of_the_forms(template: Path) -> None:
    form = parsed(template)
    if template.name == "config.yml":
        assert form["blank_issues_enabled"] is False
        return
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_there_are_templates_for_issues_and_for_pull_requests() -> None:
    assert {"bug.yml", "config.yml", "feature.yml"} <= {file.name for file in TEMPLATES}
    checklist = text(".github/pull_request_template.md")
    assert "`make check` and `make test`" in checklist


# Changelog and security policy


def releases() -> list[tuple[str, str, list[str]]]:
    """Each section of the changelog: version, date and categories."""
    found = []
    for section in text("CHANGELOG.md").split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        heading = re.fullmatch(r"\[(.+)\](?: - (\d{4}-\d\d-\d\d))?", title)
        assert heading, f"write '## [x.y.z] - YYYY-MM-DD', not {title!r}"
        categories = re.findall(r"^### (.+)$", body, re.MULTILINE)
        found.append((heading[1], heading[2] or "", categories))
    return found


def test_the_changelog_begins_with_what_is_unreleased_and_has_dated_releases_in_order() -> None:
    (first, *rest) = releases()
    assert first == ("Unreleased", "", CATEGORIES)
    assert rest
    dates = [date for _, date, _ in rest]
    assert all(dates)
    assert dates == sorted(dates, reverse=True)


def test_the_changelog_uses_its_categories_only_and_has_the_packages_version() -> None:
    for _, _, categories in releases():
        assert categories
        assert set(categories) <= set(CATEGORIES)
    assert project()["version"] in [version for version, _, _ in releases()]


def test_the_security_policy_supports_the_release_line_of_the_package() -> None:
    line = ".".join(project()["version"].split(".")[:2])
    policy = text("SECURITY.md")
    assert f"| {line}.x | yes |" in policy
    for heading in ("Supported versions", "Reporting a vulnerability", "Threat model"):
        assert f"\n## {heading}\n" in policy
    for who in (
        "the body of a task",
        "a workflow author",
        "another user of the machine",
        "a neighbour on the network",
        "a compromised LakeFS",
        "a compromised Conductor",
    ):
        assert f"\n### What {who} can do\n" in policy
