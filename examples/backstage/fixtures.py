"""The fixtures of Perago for the tests of the examples, which this project's own tests do without.

With ``SPARK_REMOTE`` in the environment (``perago dev env`` prints it) the tests use that server,
which must run on this machine; otherwise they start servers of their own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from perago.pytest_plugin import perago_stack, perago_workspace
from perago.spark.session import close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

__all__ = ["perago_spark", "perago_stack", "perago_workspace"]


@pytest.fixture(scope="session")
def perago_spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session on a Spark of this machine."""
    remote = os.environ.get("SPARK_REMOTE")
    if remote is None:
        stack = request.getfixturevalue("perago_stack")
        stack.start_spark()
        remote = stack.endpoints.spark.remote
    session = open_session(remote, uuid.uuid4().hex)
    try:
        yield session
    finally:
        close_session(session)
