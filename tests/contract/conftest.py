"""Every case runs against the fake and against the real server, so that a fake cannot lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perago.lakefs import presigned
from support.conductors import ConductorUnderTest, FakeConductor, RealConductor
from support.lake_servers import BUCKET
from support.lakes import LakeUnderTest, fake_lake, real_lake

_BOTH = [pytest.param("fake"), pytest.param("real", marks=pytest.mark.servers)]
# Past the gateway, where LakeFS gives out addresses of its store.
_ON_S3 = pytest.param("real on S3", marks=[pytest.mark.servers, pytest.mark.s3, pytest.mark.slow])


@pytest.fixture(params=[*_BOTH, _ON_S3])
def lake(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LakeUnderTest:
    if request.param == "fake":
        return fake_lake(tmp_path)
    if request.param == "real":
        return real_lake(request.getfixturevalue("connection"), tmp_path)
    # Small objects too, which would go through the gateway.
    monkeypatch.setattr(presigned, "SMALLEST_WRITTEN", 1)
    return real_lake(request.getfixturevalue("s3_connection"), tmp_path, f"s3://{BUCKET}/")


@pytest.fixture(params=_BOTH)
def conductor(request: pytest.FixtureRequest) -> Iterator[ConductorUnderTest]:
    if request.param == "fake":
        yield FakeConductor()
        return
    url = request.getfixturevalue("endpoints").conductor.server_url
    with closing(RealConductor(url)) as real:
        yield real
