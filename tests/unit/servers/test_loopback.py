"""Ports are free ones of loopback, and stay the same where they can."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from perago.servers import loopback as ports


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_listening_port_is_not_free(taken: int) -> None:
    assert not ports.is_free(taken)


def test_each_name_gets_a_free_port_of_its_own() -> None:
    chosen = ports.choose(["a", "b", "c"], {})
    assert len(set(chosen.values())) == 3
    assert all(ports.is_free(port) for port in chosen.values())


def test_a_remembered_port_is_kept_while_it_is_free() -> None:
    remembered = ports.choose(["a"], {})
    assert ports.choose(["a"], remembered) == remembered


def test_a_remembered_port_that_is_taken_is_replaced(taken: int) -> None:
    chosen = ports.choose(["a"], {"a": taken})
    assert chosen["a"] != taken
    assert ports.is_free(chosen["a"])


def test_two_names_that_remember_one_port_do_not_share_it() -> None:
    port = ports.choose(["a"], {})["a"]
    chosen = ports.choose(["a", "b"], {"a": port, "b": port})
    assert chosen["a"] == port != chosen["b"]
