"""What the worker builds to move objects, from its settings."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.errors import ConfigurationError, StaleAttemptError
from perago.lakefs.objects import LakeFSObjects
from perago.protocol.fences import Lease
from perago.settings import Settings
from perago.testing.clock import ManualClock
from perago.testing.conductor import InMemoryConductor
from perago.transfer.engine import Engine
from perago.transfer.engines import ChosenBySize, Threshold
from perago.wiring.connections import lakefs_connection
from perago.wiring.ports import SparkAccess, SystemClock, build_engine, open_cache, open_ports

LAKEFS = LakeFSConnection("http://127.0.0.1:1", "key", SecretStr("secret"))
STORE = LakeFSObjects(LAKEFS)


def built(**settings: Any) -> Engine:
    engine = build_engine(Settings(**settings), LAKEFS, STORE, lambda _: None)
    assert isinstance(engine, Engine)
    return engine


@pytest.mark.parametrize("way", ["auto", "gateway"])
def test_the_way_of_objects_is_part_of_the_connection(way: Literal["auto", "gateway"]) -> None:
    settings = Settings(
        lakefs_endpoint="http://127.0.0.1:1",
        lakefs_access_key_id="key",
        lakefs_secret_access_key=SecretStr("secret"),
        transfer=way,
    )
    assert lakefs_connection(settings).transfer == way


def test_without_spark_this_process_moves_everything(tmp_path: Path) -> None:
    engine = built(object_cache=tmp_path / "cache")
    assert engine.cache is not None
    assert engine.cache.folder == tmp_path / "cache"


def test_an_object_cache_of_no_bytes_is_none(tmp_path: Path) -> None:
    assert built(object_cache=tmp_path / "cache", object_cache_bytes=0).cache is None
    assert not (tmp_path / "cache").exists()


def test_attempts_run_without_an_object_cache_that_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o755)
    assert built(object_cache=tmp_path / "cache").cache is None
    assert "attempts run without the object cache" in caplog.text
    with pytest.raises(ConfigurationError, match="other users have rights on it"):
        open_cache(Settings(object_cache=tmp_path / "cache"))


def test_the_settings_are_the_threshold_and_no_session_is_opened_before_it_is_needed() -> None:
    settings = Settings(
        spark_min_objects=7, spark_min_bytes=9, transfer_threads=3, object_cache_bytes=0
    )
    engine = build_engine(
        settings, LAKEFS, STORE, lambda _: None, lambda: pytest.fail("a session was opened")
    )
    assert isinstance(engine, ChosenBySize)
    assert engine.threshold == Threshold(7, 9)
    assert isinstance(engine.small, Engine)
    assert engine.small.threads == 3


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has the clock")
def test_a_lease_runs_out_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """``time.monotonic`` stands still then, and the clock since boot goes on."""
    clocks = {time.CLOCK_BOOTTIME: 1000.0, time.CLOCK_MONOTONIC: 1000.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: clocks[time.CLOCK_MONOTONIC])
    clock = SystemClock()
    lease = Lease(clock, clock.monotonic() + 60)
    assert lease.bound(30, "merge") == 30
    clocks[time.CLOCK_BOOTTIME] += 3600
    with pytest.raises(StaleAttemptError, match="of the lease are left"):
        lease.bound(30, "merge")


def test_a_system_without_the_clock_since_boot_has_the_monotonic_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    before = time.monotonic()
    assert before <= SystemClock().monotonic() <= time.monotonic()


@pytest.mark.parametrize("remote", [None, SecretStr("sc://spark.example:15002")])
def test_only_an_external_spark_outlives_its_worker(
    remote: SecretStr | None,
) -> None:
    """A managed one ends with it, and is not started to end what cannot be there."""
    settings = Settings(
        lakefs_endpoint="http://127.0.0.1:1",
        lakefs_access_key_id="key",
        lakefs_secret_access_key=SecretStr("secret"),
        spark_remote=remote,
    )
    spark = SparkAccess(transfer_session=lambda: None)
    attempts = InMemoryConductor(ManualClock())
    with open_ports(settings, attempts=attempts, events=lambda _: None, spark=spark) as ports:
        assert ports.storage is not None
        assert ports.storage.transfers_outlive_worker == (remote is not None)
