"""The importable stack: each server can be stopped and started, and Spark can come later."""

from __future__ import annotations

from typing import Any

import pytest

from perago.dev import Stack
from support import stack_client as client

pytestmark = [pytest.mark.servers, pytest.mark.slow]


def _details(stack: Stack) -> dict[str, Any]:
    return stack.endpoints.model_dump()


def test_a_server_comes_back_on_its_port_with_its_data(own_stack: Stack) -> None:
    client.create_repository(_details(own_stack), "kept")
    before, pid = own_stack.endpoints, own_stack.pids["lakefs"]
    own_stack.lakefs.stop()
    assert "lakefs" not in own_stack.pids
    own_stack.lakefs.start()
    assert own_stack.endpoints == before
    assert own_stack.pids["lakefs"] != pid
    assert client.lakefs(_details(own_stack), "GET", "/repositories/kept")["id"] == "kept"


@pytest.mark.spark
def test_spark_can_be_started_later(own_stack: Stack) -> None:
    own_stack.start_spark()
    details = _details(own_stack)
    client.create_repository(details, "later")
    assert client.use_spark(details, "s3a://later/main/numbers") == (1000, 1000)
    own_stack.start_spark()  # a second time changes nothing
    assert own_stack.endpoints.model_dump() == details
