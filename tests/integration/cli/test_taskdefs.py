from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from perago.conductor.taskdefs import ConductorTaskDefs
from support.command_line import Ended, run_perago

pytestmark = pytest.mark.servers

MODULE = """\
from __future__ import annotations
from typing import Annotated, Literal
from pydantic import BaseModel, Field
from perago import RetryPolicy, TaskControls, task

class Leaf(BaseModel):
    kind: Literal["leaf"]
    size: float | None = None

class Tree(BaseModel):
    kind: Literal["tree"]
    children: list[Annotated[Leaf | Tree, Field(discriminator="kind")]] = []

@task(name="{name}", owner_email="data@example.com", controls=TaskControls(RetryPolicy({retries})))
def grow(params: Tree) -> Leaf:
    return Leaf(kind="leaf")
"""


class Shop:
    """A folder with one module, whose task has a name of its own in Conductor."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.name = f"cli_{uuid.uuid4().hex}"
        self._folder, self._settings = folder, settings
        self.write()

    def write(self, retries: int = 3, old: str = "", new: str = "") -> None:
        text = MODULE.format(name=self.name, retries=retries)
        assert old in text
        # A fresh name: two versions written within a second look alike to the bytecode cache.
        self._module = f"shop_{uuid.uuid4().hex}"
        (self._folder / f"{self._module}.py").write_text(text.replace(old, new) if old else text)

    def run(self, command: str, *options: str) -> Ended:
        return run_perago(
            command, self._module, *options, folder=self._folder, extra=self._settings
        )


@pytest.fixture
def shop(tmp_path: Path, settings: dict[str, str]) -> Shop:
    return Shop(tmp_path, settings)


def test_register_creates_then_says_unchanged(shop: Shop, taskdefs: ConductorTaskDefs) -> None:
    created = shop.run("register")
    assert (created.code, created.out) == (0, f"{shop.name}: created\n")
    before = taskdefs.get(shop.name)
    again = shop.run("register")
    assert (again.code, again.out) == (0, f"{shop.name}: unchanged\n")
    assert taskdefs.get(shop.name) == before, "nothing was written, not even a time"


def test_what_is_registered_is_what_extract_prints(shop: Shop, taskdefs: ConductorTaskDefs) -> None:
    shop.run("register")
    (extracted,) = json.loads(shop.run("extract").out)
    stored = taskdefs.get(shop.name)
    assert stored is not None
    for side in ("inputSchema", "outputSchema"):
        assert stored[side]["data"] == extracted[side]["data"]
        del extracted[side]
    assert extracted.items() <= stored.items()


def test_register_shows_what_changes_and_keeps_what_only_conductor_knows(
    shop: Shop, taskdefs: ConductorTaskDefs
) -> None:
    shop.run("register")
    stored = taskdefs.get(shop.name)
    assert stored is not None
    tuned = {"maxRetryDelaySeconds": 77, "concurrentExecLimit": 2}
    taskdefs.put({**stored, **tuned}, exists=True)
    shop.write(retries=5, old="size: float", new="size: int")
    changes = [
        "  retryCount: 3 -> 5",
        "  inputSchema.$defs.Leaf.properties.size.anyOf: "
        '[{"type": "number"}, {"type": "null"}] -> [{"type": "integer"}, {"type": "null"}]',
        "  outputSchema.properties.result.properties.size.anyOf: "
        '[{"type": "number"}, {"type": "null"}] -> [{"type": "integer"}, {"type": "null"}]',
        "  concurrentExecLimit: 2 -> 0",
    ]
    preview = shop.run("register", "--dry-run")
    assert preview.out.splitlines() == [f"{shop.name}: would be updated", *changes]
    assert (taskdefs.get(shop.name) or {})["retryCount"] == 3
    updated = shop.run("register")
    assert updated.out.splitlines() == [f"{shop.name}: updated", *changes]
    now = taskdefs.get(shop.name)
    assert now is not None
    assert (now["retryCount"], now["maxRetryDelaySeconds"]) == (5, 77)
    assert shop.run("register").out == f"{shop.name}: unchanged\n"


def test_a_dry_run_creates_nothing(shop: Shop, taskdefs: ConductorTaskDefs) -> None:
    assert shop.run("register", "--dry-run").out == f"{shop.name}: would be created\n"
    assert taskdefs.get(shop.name) is None


def test_a_taskdef_that_is_not_registered_is_an_error(shop: Shop) -> None:
    ended = shop.run("check", "--connect")
    assert ended.code == 1
    assert ended.out == f"error: {shop.name}: not registered in Conductor; run perago register\n"


def test_a_tuned_taskdef_is_a_warning(shop: Shop, taskdefs: ConductorTaskDefs) -> None:
    shop.run("register")
    assert shop.run("check", "--connect").out == f"{shop.name}: ok, as registered in Conductor\n"
    stored = taskdefs.get(shop.name)
    assert stored is not None
    taskdefs.put({**stored, "retryCount": 9, "rateLimitPerFrequency": 4}, exists=True)
    ended = shop.run("check", "--connect")
    assert ended.code == 0
    assert ended.out.splitlines()[1:] == [
        "  warning: retryCount: 9 -> 3",
        "  warning: rateLimitPerFrequency: 4 -> 0",
    ]


def test_another_contract_is_an_error_and_json_says_where(shop: Shop) -> None:
    shop.run("register")
    shop.write(old="children:", new="branches:")
    ended = shop.run("check", "--connect", "--json")
    assert ended.code == 1
    report = json.loads(ended.out)
    assert (report["exit_code"], report["problems"]) == (1, [])
    (compared,) = report["conductor"]
    assert compared["registered"] is True
    differences = {item["path"]: item for item in compared["differences"]}
    added = differences["inputSchema.$defs.Tree.properties.branches"]
    assert added["kind"] == "contract"
    assert "registered" not in added
    assert added["defined"]["type"] == "array"


def test_what_conductor_refuses_is_said_in_its_own_words(taskdefs: ConductorTaskDefs) -> None:
    from perago.errors import BackendRefusedError

    bad = {"name": f"cli_{uuid.uuid4().hex}", "ownerEmail": "a@example.com", "retryCount": -1}
    with pytest.raises(BackendRefusedError, match="retryCount: 0 must be >= 0"):
        taskdefs.put(bad, exists=False)
