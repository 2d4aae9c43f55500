"""The importable stack: each server can be stopped and started, and Spark can come later."""

from __future__ import annotations

from typing import Any

import pytest

from perago.dev import Health, Stack, inspect
from perago.errors import SetupError
from perago.servers.process import wait_gone
from support import stack_client as client

pytestmark = pytest.mark.servers


def _details(stack: Stack) -> dict[str, Any]:
    return stack.endpoints.model_dump()


@pytest.mark.slow
def test_a_server_comes_back_on_its_port_with_its_data(own_stack: Stack) -> None:
    client.create_repository(_details(own_stack), "kept")
    before, pid = own_stack.endpoints, own_stack.pids["lakefs"]
    own_stack.lakefs.stop()
    assert "lakefs" not in own_stack.pids
    own_stack.lakefs.start()
    assert own_stack.endpoints == before
    assert own_stack.pids["lakefs"] != pid
    assert client.lakefs(_details(own_stack), "GET", "/repositories/kept")["id"] == "kept"


def test_a_second_stack_on_the_same_directory_is_refused(own_stack: Stack) -> None:
    with pytest.raises(SetupError, match="another process runs or starts the stack"):
        Stack.up(own_stack.data_dir)


def test_a_killed_server_is_dead_in_the_status(own_stack: Stack) -> None:
    identity = own_stack.lakefs.identity
    assert identity is not None
    identity.kill()
    assert wait_gone([identity], 10) == []  # the signal is sent, not yet obeyed, when kill returns
    try:
        by_name = {server.name: server for server in inspect(own_stack.data_dir)}
        assert by_name["lakefs"].health is Health.DEAD
        assert "lakefs.log" in by_name["lakefs"].tail
        assert by_name["conductor"].health is Health.HEALTHY
    finally:
        own_stack.lakefs.stop()
        own_stack.lakefs.start()


@pytest.mark.slow
@pytest.mark.spark
def test_spark_can_be_started_later(own_stack: Stack) -> None:
    own_stack.start_spark()
    details = _details(own_stack)
    client.create_repository(details, "later")
    assert client.use_spark(details, "s3a://later/main/numbers") == (1000, 1000)
    own_stack.start_spark()  # a second time changes nothing
    assert own_stack.endpoints.model_dump() == details
