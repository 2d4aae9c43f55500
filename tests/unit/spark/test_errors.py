"""Errors of Spark: two versions of Python are told by their numbers and by what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perago.errors import ConfigurationError
from perago.spark.errors import explain_mismatch, tell_mismatch
from perago.spark.session import _connect, forget

# As Spark 4.1 words it, inside of the error for a job.
SPARK = """An exception was thrown from the Python worker. Please see the stack trace below.
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has \
different version: 3.10 than that in driver: 3.12, PySpark cannot run with different minor versions.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set."""


@pytest.fixture
def session() -> Iterator[Any]:
    opened = _connect("sc://localhost:1", "e")
    yield opened
    forget(opened)


def test_both_versions_are_named_with_what_to_do() -> None:
    error = explain_mismatch(SPARK)
    assert error is not None
    assert str(error) == "Spark's executors run Python 3.10, and this worker runs Python 3.12"
    assert "Install Python 3.12" in error.hint
    assert "PYSPARK_PYTHON" in error.hint
    assert explain_mismatch("ModuleNotFoundError: No module named 'pandas'") is None


def test_the_words_are_those_of_the_installed_pyspark() -> None:
    from pyspark.errors import PySparkRuntimeError

    versions = {"worker_version": "3.9", "driver_version": "3.13"}
    said = PySparkRuntimeError(errorClass="PYTHON_VERSION_MISMATCH", messageParameters=versions)
    assert str(explain_mismatch(str(said))).startswith("Spark's executors run Python 3.9, and ")


def test_a_session_s_requests_fail_with_our_error_and_keep_others(session: Any) -> None:
    tell_mismatch(session)
    with pytest.raises(ConfigurationError, match=r"run Python 3\.10") as caught:
        session.client._handle_error(RuntimeError(SPARK))
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(RuntimeError, match="something else"):
        session.client._handle_error(RuntimeError("something else"))
