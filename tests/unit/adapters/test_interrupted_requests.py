"""A signal during a request ends it at once, is handled after it, and breaks nothing."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from perago.http_client import HttpClient
from perago.signals import STOP_SIGNALS
from perago.worker.process_state import ignore_stop_signals
from support.garbage_server import GARBAGE, GarbageServer, answer
from support.waiting import joined

ROUNDS = 400


@contextmanager
def handled(number: int) -> Iterator[list[int]]:
    """A handler that raises, as Python's own for Ctrl-C; the signals for which it was called.

    Python drops what is raised while it collects garbage, which other tests left. None is collected
    here, as the signal may come between two requests as well.
    """
    came: list[int] = []

    def handler(received: int, _: FrameType | None) -> None:
        came.append(received)
        raise KeyboardInterrupt

    gc.disable()
    before = signal.signal(number, handler)
    try:
        yield came
    finally:
        signal.signal(number, before)
        gc.enable()


@contextmanager
def a_signal_after(seconds: float, number: int) -> Iterator[None]:
    sender = threading.Timer(seconds, os.kill, (os.getpid(), number))
    sender.start()
    try:
        yield
    finally:
        joined(sender)


@pytest.fixture
def client() -> Iterator[HttpClient]:
    with GarbageServer(lambda: iter([answer("200 OK", b"{}")])) as server:
        made = HttpClient(server.url, connect_timeout=5.0)
        yield made
        made.close()


def request_until(
    client: HttpClient, came: list[int], turn: int, seconds: float, number: int
) -> None:
    """Send requests until one more signal has come."""
    with a_signal_after(seconds, number):
        while len(came) <= turn:
            client.request("GET", "/", seconds=20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_moment_of_a_request_is_handled_and_the_client_goes_on(
    client: HttpClient, number: int
) -> None:
    """Raised inside the library, it left locks held, or was lost in its handling of errors."""
    chooser = random.Random(20)  # noqa: S311  moments, no secrets
    with handled(number) as came:
        for turn in range(ROUNDS):
            with pytest.raises(KeyboardInterrupt):
                request_until(client, came, turn, chooser.uniform(0.0, 0.002), number)
        assert came == [number] * ROUNDS
    assert client.request("GET", "/", seconds=20).status == 200


def test_a_signal_ends_a_request_that_waits() -> None:
    with GarbageServer(GARBAGE["silence"]) as server:
        client = HttpClient(server.url, connect_timeout=5.0)
        began = time.monotonic()
        with (
            handled(signal.SIGINT),
            pytest.raises(KeyboardInterrupt),
            a_signal_after(0.3, signal.SIGINT),
        ):
            client.request("GET", "/", seconds=60)
        assert time.monotonic() - began < 20
        client.close()


def test_a_handler_that_raises_nothing_is_called_and_breaks_nothing_off() -> None:
    """A run that publishes is not broken off."""
    came = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: came.set())

    def late() -> Iterator[bytes]:
        assert came.wait(20)
        yield answer("200 OK", b"{}")

    try:
        with GarbageServer(late) as server, a_signal_after(0.2, signal.SIGINT):
            client = HttpClient(server.url, connect_timeout=5.0)
            assert client.request("POST", "/merge", seconds=30).status == 200
            client.close()
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_and_ignored_signals_are_left_alone(client: HttpClient) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        found: list[int] = []
        thread = threading.Thread(
            target=lambda: found.append(client.request("GET", "/", seconds=20).status)
        )
        thread.start()
        joined(thread)
        assert found == [client.request("GET", "/", seconds=20).status] == [200]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_ignored_stop_interrupts_no_c_code_of_a_body_also_after_a_request(
    client: HttpClient, number: signal.Signals
) -> None:
    """A service manager's stop reaches every process of a worker; its bodies go on."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    reading, writing = os.pipe()
    try:
        ignore_stop_signals()
        assert client.request("GET", "/", seconds=20).status == 200
        write = threading.Timer(0.6, os.write, (writing, b"x"))
        write.start()
        with a_signal_after(0.2, number):
            libc = ctypes.CDLL(None, use_errno=True)
            read = libc.read(reading, ctypes.create_string_buffer(1), 1)
        joined(write)
        assert (read, ctypes.get_errno()) == (1, 0)
    finally:
        os.close(reading)
        os.close(writing)
        for each, handler in before.items():
            signal.signal(each, handler)
