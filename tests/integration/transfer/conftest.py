"""Repositories of both kinds of LakeFS, and a proxy before it that loses and spoils replies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fault_proxy import FaultProxy
from support.lake_repository import LakeRepository, a_new_repository

_PAST_IT = pytest.param("past it", marks=[pytest.mark.s3, pytest.mark.slow])


@pytest.fixture(params=["through the gateway", _PAST_IT])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> LakeRepository:
    """An empty repository, of a LakeFS on local storage or on an S3 store."""
    if request.param == "past it":
        found: LakeRepository = request.getfixturevalue("lake_on_s3")
        return found
    return a_new_repository(request.getfixturevalue("connection"), tmp_path)


@pytest.fixture
def proxy(lake: LakeRepository) -> Iterator[FaultProxy]:
    with FaultProxy(lake.connection.server) as proxy:
        yield proxy
