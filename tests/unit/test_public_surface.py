"""docs/public-surface.md lists exactly what the code offers.

The code is read through names that are public themselves, or as syntax trees: where a module lies
is not part of the surface.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from perago import errors
from perago.cli import app
from perago.errors import PeragoError
from perago.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "perago"
PAGE = (DOCS / "public-surface.md").read_text(encoding="utf-8")
_LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}


def rows(heading: str, page: str = PAGE) -> list[list[str]]:
    """The cells of the table rows below a heading, without the header."""
    _, found, rest = page.partition(f"\n## {heading}\n")
    assert found, f"there is no heading {heading!r}"
    lines = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def names(heading: str) -> list[str]:
    return [row[0].strip("`") for row in rows(heading)]


@cache
def trees() -> list[ast.Module]:
    files = sorted(SOURCE.rglob("*.py"))
    return [ast.parse(file.read_text(encoding="utf-8")) for file in files]


@cache
def all_nodes() -> list[ast.AST]:
    return [node for tree in trees() for node in ast.walk(tree)]


def nodes(kind: type[Any]) -> Iterator[Any]:
    return (node for node in all_nodes() if isinstance(node, kind))


def called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def fields_of(kind: ast.ClassDef) -> list[str]:
    """The annotated fields of a class, in order."""
    targets = (item.target for item in kind.body if isinstance(item, ast.AnnAssign))
    return [target.id for target in targets if isinstance(target, ast.Name)]


def first_text(call: ast.Call) -> str | None:
    match call.args[:1]:
        case [ast.Constant(value=str(text))]:
            return text
    return None


@pytest.mark.parametrize("module", ["perago", "perago.testing", "perago.dev"])
def test_the_page_lists_the_names_of_each_public_package(module: str) -> None:
    public = importlib.import_module(module)
    listed = names(f"`{module}`")
    assert sorted(listed) == sorted(public.__all__)
    for name in listed:
        assert hasattr(public, name)


# Commands


def commands(command: Any = None, path: str = "perago") -> Iterator[tuple[str, set[str]]]:
    command = command or typer.main.get_command(app)
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{path} {name}")
    if not hasattr(command, "commands"):
        options = (option for option in command.params if option.param_type_name == "option")
        yield path, {name for option in options for name in option.opts}


def test_the_page_lists_every_command_with_its_options() -> None:
    listed = {
        row[0].strip("`"): set(re.findall(r"`(-[^`]+)`", row[1]))
        | ({"--json"} if row[2] == "yes" else set())
        for row in rows("Commands")
    }
    assert listed == dict(commands())
    assert all(row[2] == "yes" for row in rows("Commands"))


def test_every_exit_code_of_a_command_is_explained_on_the_page_of_the_command_line() -> None:
    table = rows("Exit codes", (DOCS / "cli.md").read_text(encoding="utf-8"))
    explained = {code for row in table for code in row[0].split(", ")}
    used = {code for row in rows("Commands") for code in row[3].split(", ")}
    assert used <= explained
    kinds = {str(kind.exit_code) for kind in error_tree()}
    cli = importlib.import_module("perago.cli")
    own = {str(int(value)) for name, value in vars(cli).items() if name.startswith("EXIT_")}
    assert own
    assert explained == {"0", *kinds, *own}


# Errors


def error_tree(root: type[PeragoError] = PeragoError) -> Iterator[type[PeragoError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from error_tree(child)


def test_the_page_lists_every_error_with_its_code_status_and_exit_code() -> None:
    kinds = sorted(error_tree(), key=lambda kind: kind.code)
    assert rows("Error codes") == [
        [kind.code, f"`{kind.__name__}`", kind.disposition.value, str(kind.exit_code)]
        for kind in kinds
    ]


# Logs


def forwarders() -> set[str]:
    """Functions and classes whose first parameter is an action: their callers name it."""
    found = set()
    for function in nodes(ast.FunctionDef):
        arguments = [item.arg for item in function.args.args if item.arg not in {"self", "cls"}]
        if arguments[:1] == ["action"]:
            found.add(function.name)
    for kind in nodes(ast.ClassDef):
        if fields_of(kind)[:1] == ["action"]:
            found.add(kind.name)
    return found


def structlog_names(tree: ast.Module) -> set[str]:
    """The names that a module gives its structlog loggers."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="structlog"), attr="get_logger")
                ),
            ):
                found.add(name)
    return found


def logged() -> Iterator[tuple[str, ast.Call]]:
    """Each call of a structlog logger, with the method's name."""
    for tree in trees():
        loggers = structlog_names(tree)
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
                    if name in loggers and method in _LOG_METHODS:
                        yield method, node


def actions() -> set[str]:
    forwarding = forwarders()
    direct = (first_text(call) for _, call in logged())
    told = (first_text(call) for call in nodes(ast.Call) if called(call) in forwarding)
    return {text for text in (*direct, *told) if text is not None}


def test_the_page_lists_every_action_of_the_log() -> None:
    found = actions()
    assert {"phase_ended", "worker_started", "reply_lost", "result_not_delivered"} <= found
    assert names("Log actions") == sorted(found)


def test_a_log_line_names_its_action_where_it_is_written_or_takes_it_as_a_parameter() -> None:
    """Otherwise the list above would miss an action that is put together at run time."""
    for method, call in logged():
        named = first_text(call) is not None
        passed = isinstance(call.args[0], ast.Name) and call.args[0].id == "action"
        assert named or passed, f"{method} at line {call.lineno}: {ast.unparse(call)[:80]}"


def test_the_page_gives_the_level_of_each_line_that_is_logged_directly() -> None:
    levels = {row[0].strip("`"): row[1].split(", ") for row in rows("Log actions")}
    for method, call in logged():
        action = first_text(call)
        if action is not None:
            assert {"exception": "error"}.get(method, method) in levels[action]


# Metrics and settings


def metrics() -> set[str]:
    """The names that are given to a counter, gauge or histogram."""
    found = set()
    for call in nodes(ast.Call):
        kind = called(call).lstrip("_").lower()
        name = first_text(call)
        if kind in {"counter", "gauge", "histogram"} and name is not None:
            found.add(f"perago_{name}_total" if kind == "counter" else f"perago_{name}")
    return found


def test_the_page_of_metrics_lists_every_metric() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(perago_\w+)`", page, re.MULTILINE)
    assert sorted(listed) == sorted(metrics())


def test_the_page_of_metrics_lists_every_phase() -> None:
    found = {
        text
        for call in nodes(ast.Call)
        if called(call) == "phases" and (text := first_text(call)) is not None
    }
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    paragraph = page.partition("\n`phase` is ")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", paragraph)) == found


def test_the_page_of_the_configuration_lists_every_variable() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    listed = [row[0].strip("`") for row in rows("Settings", page)]
    assert listed == [str(field.validation_alias) for field in Settings.model_fields.values()]


# The record


def record_keys() -> list[str]:
    """The fields of the record, and the keys that are written out in full."""
    kinds = [kind for kind in nodes(ast.ClassDef) if kind.name == "Record"]
    assert len(kinds) == 1
    texts = {node.value for node in nodes(ast.Constant) if isinstance(node.value, str)}
    keys = {text for text in texts if re.fullmatch(r"perago\.[a-z]+_[a-z_]+", text)}
    return [f"perago.{name}" for name in fields_of(kinds[0])] + sorted(keys)


def test_the_example_of_doctor_counts_the_settings() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    (given, left) = re.findall(r"settings: (\d+) from environment, (\d+) from default", page)[0]
    assert int(given) + int(left) == len(Settings.model_fields)


def test_the_page_lists_every_key_of_the_record() -> None:
    assert names("The record on commits") == record_keys()
