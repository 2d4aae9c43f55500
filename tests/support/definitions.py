"""Task definitions for the tests of what an author writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perago import task
from perago.errors import DefinitionError
from perago.tasks.definition import TaskDefinition, definition_of


class Params(BaseModel):
    stem: str


class Result(BaseModel):
    count: int


def file_body(workspace: Path, params: Params) -> Result:
    """Count files."""
    return Result(count=len(list(workspace.iterdir())))


def define(body: Any, **options: Any) -> TaskDefinition:
    given: dict[str, Any] = {"name": "a_task", "owner_email": "data@example.com", **options}
    definition = definition_of(task(**given)(body))
    assert definition is not None
    return definition


def refused(body: Any, **options: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        define(body, **options)
    return str(caught.value)


def no_warning(text: str) -> None:
    """Take a guardrail's warning where none is expected."""
    pytest.fail(f"a guardrail warned: {text}")
