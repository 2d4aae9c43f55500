"""A session on the stack's Spark server, with this very code in its workers."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

import perago
from integration.transfer.lake import Lake, a_new_repository
from perago import dev
from perago.connections import LakeFSConnection
from perago.spark.session import close_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_endpoints(request: pytest.FixtureRequest) -> dev.Endpoints:
    """Where LakeFS and Spark are; a running stack counts only if it has a Spark server."""
    if given := os.environ.get("PERAGO_TEST_ENDPOINTS"):
        endpoints = dev.Endpoints.model_validate_json(given)
        if endpoints.spark is not None:
            return endpoints
    stack: dev.Stack = request.getfixturevalue("spark_stack")
    return stack.endpoints


@pytest.fixture(scope="session")
def worker_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This code as a zip, so that Spark's workers run it and not what is installed."""
    modules = tmp_path_factory.mktemp("modules") / "perago.zip"
    home = Path(perago.__file__).parent
    with zipfile.ZipFile(modules, "w") as bundle:
        for file in home.rglob("*.py"):
            bundle.write(file, file.relative_to(home.parent))
    return modules


@pytest.fixture(scope="session")
def session(spark_endpoints: dev.Endpoints, worker_modules: Path) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    assert spark_endpoints.spark is not None
    session = SparkSession.builder.remote(spark_endpoints.spark.remote).create()
    try:
        session.addArtifacts(str(worker_modules), pyfile=True)
        yield session
    finally:
        close_session(session)


@pytest.fixture
def connection(spark_endpoints: dev.Endpoints) -> LakeFSConnection:
    lakefs = spark_endpoints.lakefs
    return LakeFSConnection(
        lakefs.endpoint, lakefs.access_key_id, SecretStr(lakefs.secret_access_key)
    )


@pytest.fixture
def lake(connection: LakeFSConnection, tmp_path: Path) -> Lake:
    return a_new_repository(connection, tmp_path)
