"""The calls of a good attempt, recorded once, and where results of cells are kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from perago import dev
from support.fault_matrix import Call, Kind, record_calls
from support.presigning_servers import PresigningServers, presigning_servers
from support.real_world import Servers

# Where `make soak` collects what happened; without it, results are not kept.
_FOLDER = "PERAGO_SOAK_FOLDER"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every cell runs when it is asked for: ``pytest tests/matrix -m soak``."""
    if "soak" in (config.option.markexpr or ""):
        return
    cells = [item for item in items if item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=cells)
    items[:] = [item for item in items if item not in cells]


@pytest.fixture(scope="session")
def presigning(
    endpoints: dev.Endpoints, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PresigningServers]:
    """A LakeFS whose addresses lead to its store through a proxy."""
    with presigning_servers(endpoints, tmp_path_factory.mktemp("presigning") / "server") as running:
        yield running


@pytest.fixture(scope="session")
def servers_of(servers: Servers, request: pytest.FixtureRequest) -> Callable[[Kind], Servers]:
    """The servers on which a kind of task runs."""

    def found(kind: Kind) -> Servers:
        is_presigned = kind == "file-presigned"
        return request.getfixturevalue("presigning") if is_presigned else servers

    return found


@pytest.fixture(scope="session")
def calls(
    servers_of: Callable[[Kind], Servers],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Kind], list[Call]]:
    """The calls of one good attempt of a kind of task."""

    @cache
    def recorded(kind: Kind) -> list[Call]:
        remote = request.getfixturevalue("spark_remote") if kind == "spark" else ""
        return record_calls(kind, servers_of(kind), remote, tmp_path_factory.mktemp("recorded"))

    return recorded


@pytest.fixture(scope="session")
def keep() -> Callable[[str, Any], None]:
    """Keep one result for the report of the soak."""

    def kept(matrix: str, result: Any) -> None:
        assert is_dataclass(result)
        assert not isinstance(result, type)
        if folder := os.environ.get(_FOLDER):
            # One line per result, appended: several processes may run cells.
            with (Path(folder) / f"{matrix}.jsonl").open("a") as lines:
                lines.write(json.dumps(asdict(result)) + "\n")

    return kept
