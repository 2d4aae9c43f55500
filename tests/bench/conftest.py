"""Measurements run when they are asked for: ``pytest tests/bench -m bench``."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "bench" in (config.option.markexpr or ""):
        return
    measurements = [item for item in items if item.get_closest_marker("bench")]
    config.hook.pytest_deselected(items=measurements)
    items[:] = [item for item in items if item not in measurements]
