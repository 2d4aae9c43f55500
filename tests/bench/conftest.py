"""Measurements run when they are asked for: ``make bench``, or ``pytest tests/bench -m bench``.

``PERAGO_BENCH_ROWS`` names rows of the table (``support/bench/table.py``), and
``PERAGO_BENCH_QUICK=1`` leaves out the long ones and does fewer rounds.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.bench import peer_package
from support.bench.peers import Peer, look_for
from support.bench.results import BENCH, Book
from support.bench.table import chosen, rounds_of
from support.go_programs import LAKECTL, RCLONE, VERSITYGW

QUICK = os.environ.get("PERAGO_BENCH_QUICK", "") not in ("", "0")


def rows_of(item: pytest.Item) -> tuple[str, ...]:
    """The rows that a test measures."""
    marker = item.get_closest_marker("bench")
    return marker.args if marker else ()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = "bench" in (config.option.markexpr or "")
    try:
        keys = chosen(os.environ.get("PERAGO_BENCH_ROWS", ""), quick=QUICK) if asked else ()
    except ValueError as error:
        raise pytest.UsageError(f"ROWS: {error}") from None
    here = Path(__file__).parent
    left_out = [
        item
        for item in items
        if item.path.is_relative_to(here) and not any(row in keys for row in rows_of(item))
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    """A row that could not be measured is in the report, with the reason."""
    report = yield
    if report.failed and report.when != "teardown" and call.excinfo is not None:
        for row in rows_of(item):
            Book().fail(row, call.excinfo.exconly())
    return report


@pytest.fixture
def book() -> Book:
    """Where the rows are taken down."""
    return Book()


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How many rounds the test does."""
    return rounds_of(rows_of(request.node), quick=QUICK)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that is removed with the test: gigabytes are not to be kept for three runs."""
    BENCH.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=BENCH))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


# The peers; what they need is fetched and built before a test's time begins to count.


@pytest.fixture(scope="session")
def lakectl() -> Peer:
    return look_for(LAKECTL.obtain)


@pytest.fixture(scope="session")
def rclone() -> Peer:
    return look_for(RCLONE.obtain)


@pytest.fixture(scope="session")
def peer() -> Peer:
    """The package of PyPI."""
    return look_for(peer_package.obtain)


@pytest.fixture(scope="session")
def s3_program() -> Path:
    """The S3 server, without which the rows about it cannot be measured."""
    return VERSITYGW.obtain()
