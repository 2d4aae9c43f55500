"""Every case runs against the fake and against the real server, so that a fake cannot lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.conductors import ConductorUnderTest, FakeConductor, RealConductor
from support.lakes import LakeUnderTest, fake_lake, real_lake

_BOTH = [pytest.param("fake"), pytest.param("real", marks=pytest.mark.servers)]


@pytest.fixture(params=_BOTH)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> LakeUnderTest:
    if request.param == "fake":
        return fake_lake(tmp_path)
    return real_lake(request.getfixturevalue("endpoints"), tmp_path)


@pytest.fixture(params=_BOTH)
def conductor(request: pytest.FixtureRequest) -> Iterator[ConductorUnderTest]:
    if request.param == "fake":
        yield FakeConductor()
        return
    url = request.getfixturevalue("endpoints").conductor.server_url
    with closing(RealConductor(url)) as real:
        yield real
