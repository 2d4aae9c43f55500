"""A session's address is its execution's, and its end waits for no dead server."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql.connect.session import SparkSession

from perago.errors import SparkServerDiedError
from perago.spark import session as session_module
from perago.spark.executions import ConnectExecution
from perago.spark.session import (
    POOL_SETTING,
    _connect,
    end_session,
    forget,
    is_gone,
    open_session,
    pool_name,
    session_id,
    session_remote,
)

EXECUTION = "0123456789abcdef0123456789abcdef"
SESSION = "01234567-89ab-cdef-0123-456789abcdef"


def test_the_session_id_is_the_execution_id_as_a_uuid() -> None:
    assert session_id(EXECUTION) == SESSION


def test_each_process_has_a_pool_of_its_own_which_its_attempts_share() -> None:
    assert pool_name() == pool_name() == f"perago-{socket.gethostname()}-{os.getpid()}"


def test_any_other_execution_id_gives_a_uuid_of_its_own() -> None:
    first, second = session_id("run-1"), session_id("run-2")
    assert first != second
    assert str(uuid.UUID(first)) == first
    assert session_id("run-1") == first


def test_a_remote_keeps_what_it_says_and_names_one_session() -> None:
    given = "sc://localhost:1/;token=t;use_ssl=true"
    wanted = f"sc://localhost:1/;token=t;use_ssl=true;user_id=perago;session_id={SESSION}"
    assert session_remote(given, EXECUTION) == wanted


def test_the_user_of_an_external_remote_is_kept() -> None:
    remote = session_remote("sc://host/;user_id=me", EXECUTION)
    assert remote == f"sc://host/;user_id=me;session_id={SESSION}"


def test_a_bare_remote_gets_its_parameters() -> None:
    wanted = f"sc://host:15002/;user_id=perago;session_id={SESSION}"
    assert session_remote("sc://host:15002", EXECUTION) == wanted
    assert session_remote("sc://host:15002/", EXECUTION) == wanted


def test_a_session_has_no_setting_of_its_own_while_it_may_be_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[tuple[str, str]] = []
    opened = MagicMock()
    opened.conf.set = lambda key, value: done.append((key, value))
    monkeypatch.setattr(session_module, "_connect", lambda *_: opened)
    monkeypatch.setattr(SparkSession, "_active_session", threading.local())
    monkeypatch.setattr(SparkSession, "_default_session", None)
    begin = lambda remote, _: done.append(("begin", remote))  # noqa: E731
    assert open_session("sc://host", EXECUTION, begin=begin) is opened
    assert done == [("begin", "sc://host"), (POOL_SETTING, pool_name())]


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_a_session_whose_server_is_gone_is_ended_without_asking_it(port: int) -> None:
    session = _connect(f"sc://127.0.0.1:{port}", EXECUTION)
    assert is_gone(session)
    began = time.monotonic()
    end_session(session)
    # The client's own retries would take most of a minute.
    assert time.monotonic() - began < 5


def test_a_session_whose_server_listens_is_not_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        session = _connect(f"sc://localhost:{server.getsockname()[1]}", EXECUTION)
        assert not is_gone(session)
        forget(session)


def test_a_host_that_cannot_be_found_is_left_to_the_client() -> None:
    session = _connect("sc://no-such-host.invalid:15002", EXECUTION)
    assert not is_gone(session)
    forget(session)


def test_a_session_that_is_over_is_not_the_active_one(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyspark asks the active session for settings when a column is named."""
    monkeypatch.setattr(SparkSession, "_active_session", threading.local())
    monkeypatch.setattr(SparkSession, "_default_session", None)
    session = _connect(f"sc://127.0.0.1:{port}", EXECUTION)
    assert SparkSession.getActiveSession() is session
    end_session(session)
    assert SparkSession.getActiveSession() is None
    later = _connect(f"sc://127.0.0.1:{port}", EXECUTION)
    assert SparkSession.getActiveSession() is later
    assert SparkSession.active() is later
    forget(later)


def test_of_a_session_that_is_over_nothing_stays_until_the_process_ends(port: int) -> None:
    """A supervisor opens a session for each attempt that it interrupts."""
    session = _connect(f"sc://127.0.0.1:{port}", EXECUTION)
    client = weakref.ref(session.client)
    end_session(session)
    del session
    gc.collect()
    assert client() is None


def test_the_operations_of_a_server_that_is_gone_are_not_waited_for(port: int) -> None:
    session = _connect(f"sc://127.0.0.1:{port}", EXECUTION)
    unused: Any = None
    execution = ConnectExecution(session, unused, "repository", "data", unused)
    began = time.monotonic()
    with pytest.raises(SparkServerDiedError, match="nothing listens any more"):
        execution.end_operations()
    execution.close()
    assert time.monotonic() - began < 5
