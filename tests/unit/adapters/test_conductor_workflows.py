"""Requests about workflows: a start is one request, and a refusal inside an answer is seen."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from perago.conductor.workflows import ConductorWorkflows
from perago.errors import BackendRefusedError, BackendUnavailableError, LostReplyError
from support.adapter_calls import conductor
from support.garbage_server import GarbageServer, answer

ID = "9e756fda-59b4-4370-8a30-478563a38e95"


def server_that_says(value: Any, status: str = "200 OK") -> GarbageServer:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return GarbageServer(lambda: iter([answer(status, body)]))


@pytest.mark.parametrize("text", [ID.encode(), f'"{ID}"\n'.encode()])
def test_the_id_of_a_started_workflow_is_read_as_text_or_json(text: bytes) -> None:
    with server_that_says(text) as server, closing(ConductorWorkflows(conductor(server.url))) as it:
        assert it.start({"name": "wf"}) == ID


def test_a_start_without_an_answer_is_lost_and_not_repeated() -> None:
    with (
        GarbageServer(lambda: iter([b""])) as server,
        closing(ConductorWorkflows(conductor(server.url))) as it,
    ):
        with pytest.raises(LostReplyError):
            it.start({"name": "wf"})
        assert len(server.requests) == 1


def test_a_definition_that_is_refused_inside_an_answer_is_refused() -> None:
    said = {"bulkErrorResults": {"wf": "no such timeout policy"}, "bulkSuccessfulResults": []}
    with (
        server_that_says(said) as server,
        closing(ConductorWorkflows(conductor(server.url))) as it,
        pytest.raises(BackendRefusedError, match="no such timeout policy"),
    ):
        it.put_definition({"name": "wf"})


def test_another_workflow_than_the_one_asked_for_is_no_answer() -> None:
    said = {"workflowId": "another", "status": "RUNNING"}
    with (
        server_that_says(said) as server,
        closing(ConductorWorkflows(conductor(server.url))) as it,
        pytest.raises(BackendUnavailableError, match="another workflow"),
    ):
        it.read(ID)
