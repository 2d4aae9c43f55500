"""Sessions that begin as clones of a base session, on a real server that lacks our modules."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql.connect.session import SparkSession
from structlog.testing import capture_logs

from perago.spark.base import CONTENT_SETTING, BaseSessions, Cloning, clone
from perago.spark.client import SparkClient
from perago.spark.files import SparkFiles
from perago.spark.session import (
    POOL_SETTING,
    _connect,
    end_session,
    interrupt,
    open_session,
    pool_name,
)
from perago.spark.shipment import Shipment
from support.waiting import until

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(120)]

Open = Callable[..., Any]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module of the author's that is new to the server: so is the content with it."""
    file = tmp_path / f"words_{uuid.uuid4().hex}.py"
    file.write_text("WORD = 'here'\n")
    return file


@pytest.fixture
def bases(module: Path) -> BaseSessions:
    return BaseSessions(Shipment((), (), SparkFiles((str(module),))))


@pytest.fixture
def begin(spark_remote: str) -> Iterator[Open]:
    """Open sessions that end with the test."""
    opened: list[Any] = []

    def start(bases: BaseSessions, execution_id: str = "") -> Any:
        name = execution_id or uuid.uuid4().hex
        opened.append(open_session(spark_remote, name, begin=bases.begin))
        return opened[-1]

    yield start
    for session in opened:
        end_session(session)


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What this process sends to the server."""
    sent: list[tuple[str, ...]] = []
    given = SparkSession.addArtifacts

    def noted(session: Any, *files: str, **kind: Any) -> None:
        sent.append(tuple(Path(file).name for file in files))
        given(session, *files, **kind)

    monkeypatch.setattr(SparkSession, "addArtifacts", noted)
    return sent


def imported(session: Any, *names: str) -> list[str]:
    """Where a function on Spark finds modules."""

    def look(batches: Any) -> Any:
        import importlib

        files = [importlib.import_module(name).__file__ for name in names]
        for batch in batches:
            yield type(batch).from_pydict({"file": files})

    rows = session.range(1, numPartitions=1).mapInArrow(look, "file string").collect()
    return [row.file for row in rows]


def close_base(session: Any, remote: str, bases: BaseSessions) -> None:
    """Close the base session, as the server does with one that nobody used for an hour."""
    content = bases._shipment.content(shares=False)
    name = next(bases._base_ids(remote, content))
    base = _connect(remote, name)
    assert base.conf.get(CONTENT_SETTING, "") == content.digest
    end_session(base)
    assert clone(session.client, name, str(uuid.uuid4()))[0] is Cloning.SOURCE_CLOSED


def test_the_second_session_sends_nothing_and_its_functions_find_everything(
    spark_remote: str, module: Path, uploads: list[tuple[str, ...]]
) -> None:
    path, files = list(sys.path), SparkFiles((str(module),))
    first = SparkClient(lambda: spark_remote, (), (), files)
    end_session(first.open(uuid.uuid4().hex))
    assert uploads == [("perago_python",), ("perago_modules.zip",), (module.name,)]
    # Of this process and of another one, and although the session before is over.
    for client in (first, SparkClient(lambda: spark_remote, (), (), files)):
        session = client.open(uuid.uuid4().hex)
        try:
            places = imported(session, module.stem, "perago.lakefs.objects")
            assert session.conf.get(POOL_SETTING) == pool_name()
        finally:
            end_session(session)
        assert places[0].endswith(module.name)
        assert "/perago_modules.zip/perago/" in places[1]
    assert len(uploads) == 3
    assert sys.path == path


@pytest.mark.slow
def test_a_base_session_that_the_server_closed_is_replaced(
    spark_remote: str, module: Path, bases: BaseSessions, begin: Open, uploads: list[Any]
) -> None:
    begin(bases)
    second = begin(bases)
    close_base(second, spark_remote, bases)
    # What began from it goes on; here its functions run for the first time.
    assert imported(second, module.stem)
    assert len(uploads) == 3
    assert imported(begin(bases), module.stem)
    assert len(uploads) == 6
    begin(bases)
    begin(BaseSessions(bases._shipment))
    assert len(uploads) == 6


@pytest.mark.slow
def test_processes_that_begin_at_the_same_moment_all_end_well(
    module: Path, begin: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The threads of this process are the processes here, which do not share a path.
    monkeypatch.setattr(sys, "path", list(sys.path))
    files = SparkFiles((str(module),))
    barrier = threading.Barrier(2, timeout=60)

    class Together(Shipment):
        waited = False

        def content(self, *, shares: bool) -> Any:
            found = super().content(shares=shares)
            if not self.waited:
                self.waited = True
                barrier.wait()
            return found

    with ThreadPoolExecutor(2) as threads, capture_logs() as lines:
        every = [threads.submit(begin, BaseSessions(Together((), (), files))) for _ in range(2)]
        sessions = [it.result(timeout=90) for it in every]
    sent = [line["event"] for line in lines]
    assert 1 <= sent.count("spark_modules_sent") <= 2
    assert "spark_clone_failed" not in sent
    for session in [*sessions, begin(BaseSessions(Shipment((), (), files)))]:
        assert imported(session, module.stem)


def test_another_process_ends_a_session_that_began_as_a_clone(
    spark_remote: str, bases: BaseSessions, begin: Open, tmp_path: Path
) -> None:
    begin(bases)
    execution = uuid.uuid4().hex
    session = begin(bases, execution)
    trace = str(tmp_path / "trace")

    def endless(batches: Any) -> Any:
        import time
        from pathlib import Path

        for batch in batches:
            Path(trace).touch()
            time.sleep(300)
            yield batch

    job = session.range(1).mapInArrow(endless, "id long")
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(job.collect)
        until(Path(trace).exists, "the job to run", 60)
        assert interrupt(spark_remote, execution) == 1
        with pytest.raises(SparkConnectException, match=r"CANCELED|CLOSED"):
            running.result(timeout=30)
    with pytest.raises(SparkConnectException, match="SESSION_CLOSED"):
        begin(bases, execution)


def test_what_the_server_says_to_a_request_for_a_clone(
    spark_remote: str, bases: BaseSessions, begin: Open
) -> None:
    """As the stand-in of the unit tests does (``unit/spark/test_base.py``)."""
    source, there, over = begin(bases), begin(bases), begin(bases)
    end_session(over)
    client, names = source.client, [it.client._session_id for it in (source, there, over)]
    new, absent = str(uuid.uuid4()), str(uuid.uuid4())
    cases = {
        Cloning.DONE: (names[0], new),
        Cloning.NO_SOURCE: (absent, str(uuid.uuid4())),
        Cloning.SOURCE_CLOSED: (names[2], str(uuid.uuid4())),
        Cloning.TARGET_EXISTS: (names[0], names[1]),
        Cloning.TARGET_CLOSED: (names[0], names[2]),
    }
    assert {ended: clone(client, *pair)[0] for ended, pair in cases.items()} == {
        ended: ended for ended in cases
    }
    end_session(_connect(spark_remote, new))
