"""Streaming queries are operations too: each is stopped, and one that does not stop is told."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from perago.spark import operations
from perago.spark.operations import end_operations


class Query:
    """A streaming query; a stubborn one never stops."""

    def __init__(self, session: Session, *, stubborn: bool = False, fails: bool = False) -> None:
        self._session = session
        self._stubborn = stubborn
        self._fails = fails

    def stop(self) -> None:
        if self._stubborn:
            threading.Event().wait(60)
        self._session.active.remove(self)
        if self._fails:
            raise RuntimeError("the query had failed")


class Session:
    """As much of a session as ending its operations needs."""

    def __init__(self) -> None:
        self.active: list[Query] = []
        self.interrupted = 0

    @property
    def streams(self) -> Streams:
        return Streams(list(self.active))

    def interruptAll(self) -> list[str]:  # noqa: N802  pyspark's name
        self.interrupted += 1
        return []


class Streams:
    """The queries of a session at one moment."""

    def __init__(self, active: list[Query]) -> None:
        self.active = active


def test_active_queries_are_stopped_and_counted() -> None:
    session = Session()
    session.active = [Query(session), Query(session, fails=True)]
    assert end_operations(session, 5.0) == 2
    assert session.active == []
    # Once more after the queries: one may have started a job.
    assert session.interrupted == 2
    assert end_operations(session, 5.0) == 0


def test_a_query_that_does_not_stop_is_an_error_within_the_time() -> None:
    session = Session()
    session.active = [Query(session, stubborn=True)]
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="1 streaming queries did not stop"):
        end_operations(session, 0.5)
    assert time.monotonic() - began < 10


class Restless(Session):
    """A thread of the body begins an operation whenever another one has ended."""

    def interruptAll(self) -> list[str]:  # noqa: N802  pyspark's name
        return [uuid.uuid4().hex]


def test_operations_that_begin_again_and_again_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "await_end", lambda *_: None)
    with pytest.raises(TimeoutError, match="one operation after the other"):
        end_operations(Restless(), 0.05)
