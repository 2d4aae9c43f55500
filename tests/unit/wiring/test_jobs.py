"""Jobs from task definitions: what the record on commits gets of them."""

from __future__ import annotations

import hashlib
import sys
import types
from pathlib import Path

import pytest
from pydantic import BaseModel

import perago
from perago import WorkspaceSpec, forbid_glob, require_file, task
from perago.tasks.definition import TaskDefinition, definition_of
from perago.wiring.jobs import build_job


class Model(BaseModel):
    """Params and result."""


@task(
    name="counted",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(pre=[require_file("a"), require_file("b")], post=[forbid_glob("*")]),
)
def counted(workspace: Path, params: Model) -> Model:
    return Model()


def definition() -> TaskDefinition:
    found = definition_of(counted)
    assert found is not None
    return found


def test_a_job_knows_its_guardrails_its_code_and_its_runtime() -> None:
    job = build_job(definition())
    assert job.workspace is not None
    assert (job.workspace.pre_guardrails, job.workspace.post_guardrails) == (2, 1)
    assert job.perago_version == perago.__version__
    # What sha256sum says of this very file.
    assert job.code_fingerprint == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


@pytest.mark.parametrize("file", [None, "/no/such/archive.zip/module.py"])
def test_code_without_a_file_has_no_fingerprint(
    monkeypatch: pytest.MonkeyPatch, file: str | None
) -> None:
    module = types.ModuleType(counted.__module__)
    module.__file__ = file
    monkeypatch.setitem(sys.modules, counted.__module__, module)
    assert build_job(definition()).code_fingerprint is None
