"""The metrics of real attempts: that events carry what metrics count, under the names they use."""

from __future__ import annotations

import pytest

from perago.observability.metrics import WorkerMetrics
from perago.protocol.outcome import Completed
from support.real_world import RealWorld, write_nothing

pytestmark = pytest.mark.servers


def metrics_of(world: RealWorld) -> WorkerMetrics:
    metrics = WorkerMetrics(["t"])
    for event in world.events:
        metrics.observe("t", event)
    return metrics


def value(metrics: WorkerMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"perago_{name}", {"task": "t", **labels})


def test_a_publication_is_counted_with_what_it_moved(world: RealWorld) -> None:
    world.start()
    outcome, _ = world.attempt(world.job())
    assert isinstance(outcome, Completed)
    metrics = metrics_of(world)
    moved = {
        direction: value(metrics, "transfer_objects_total", direction=direction)
        for direction in ("download", "upload", "delete")
    }
    assert moved == {"download": 2, "upload": 2, "delete": 1}
    assert value(metrics, "transfer_bytes_total", direction="download") == len("alpha" + "beta")
    assert value(metrics, "transfer_bytes_total", direction="upload") == len("new" + "gamma")
    assert value(metrics, "publish_seconds_count", how="merged") == 1
    assert value(metrics, "phase_seconds_count", phase="stage") == 1


def test_an_attempt_that_changes_nothing_uploads_nothing(world: RealWorld) -> None:
    world.start()
    outcome, _ = world.attempt(world.job(write_nothing))
    assert isinstance(outcome, Completed)
    metrics = metrics_of(world)
    assert value(metrics, "transfer_objects_total", direction="upload") == 0
    assert value(metrics, "publish_seconds_count", how="unchanged") == 1
    assert value(metrics, "publish_seconds_count", how="merged") is None


def test_a_target_that_somebody_else_moved_is_a_publish_fence_rejection(world: RealWorld) -> None:
    world.start()
    world.commit("main", {"other/x.txt": "1"})
    world.commit("main", {"other/y.txt": "2"})
    world.attempt(world.job())
    metrics = metrics_of(world)
    assert value(metrics, "fence_rejections_total", fence="publish") == 1
    assert value(metrics, "fence_rejections_total", fence="attempt") == 0
