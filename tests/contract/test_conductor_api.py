"""What only the real Conductor can show of the requests that the fake does not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from perago.conductor.taskdefs import ConductorTaskDefs
from perago.connections import ConductorConnection
from perago.errors import BackendRefusedError
from perago.servers.endpoints import Endpoints
from support.conductors import RealConductor

pytestmark = pytest.mark.servers


@pytest.fixture
def connection(endpoints: Endpoints) -> ConductorConnection:
    return ConductorConnection(endpoints.conductor.server_url)


@pytest.fixture
def conductor(connection: ConductorConnection) -> Iterator[RealConductor]:
    with closing(RealConductor(connection.server_url)) as real:
        yield real


def _settings(taskdef: dict[str, Any]) -> dict[str, Any]:
    """What was put, without what the server notes about each change."""
    return {name: value for name, value in taskdef.items() if not name.startswith("update")}


def test_a_taskdef_is_created_replaced_and_read_as_it_was_written(
    connection: ConductorConnection, conductor: RealConductor
) -> None:
    wanted = {
        "name": conductor.task_type,
        "ownerEmail": "data@example.com",
        "retryCount": 2,
        "timeoutSeconds": 60,
        "responseTimeoutSeconds": 30,
    }
    with closing(ConductorTaskDefs(connection)) as taskdefs:
        assert taskdefs.get(conductor.task_type) is None
        taskdefs.put(wanted, exists=False)
        found = taskdefs.get(conductor.task_type)
        assert found is not None
        assert wanted.items() <= found.items()
        taskdefs.put({**found, "retryCount": 7}, exists=True)
        replaced = taskdefs.get(conductor.task_type)
        assert replaced is not None
        assert {**_settings(replaced), "retryCount": 2} == _settings(found)
        assert replaced["retryCount"] == 7
        with pytest.raises(BackendRefusedError, match="retryCount"):
            taskdefs.put({**wanted, "retryCount": -1}, exists=True)


def test_the_task_log_keeps_line_breaks_and_characters(
    connection: ConductorConnection, conductor: RealConductor
) -> None:
    conductor.start()
    delivery = conductor.attempts.poll(conductor.task_type, "claim-log", wait_ms=5000)
    assert delivery is not None
    task_id = delivery.claim.attempt.task_id
    conductor.attempts.log(task_id, 'one "line"\nand another: ä')
    written = httpx.get(f"{connection.api}/tasks/{task_id}/log", timeout=20).json()
    assert [entry["log"] for entry in written] == ['one "line"\nand another: ä']


def test_the_server_is_recognised(conductor: RealConductor) -> None:
    conductor.attempts.assert_answers()
