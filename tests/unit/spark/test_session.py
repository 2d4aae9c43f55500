"""A session's address is its execution's."""

from __future__ import annotations

import os
import socket
import uuid

from perago.spark.session import pool_name, session_id, session_remote

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
