"""What the worker builds to move objects, from its settings."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.lakefs.objects import LakeFSObjects
from perago.settings import Settings
from perago.transfer.engine import Engine
from perago.transfer.engines import ChosenBySize, Threshold
from perago.wiring.ports import build_engine

LAKEFS = LakeFSConnection("http://127.0.0.1:1", "key", SecretStr("secret"))
STORE = LakeFSObjects(LAKEFS)


def test_without_spark_this_process_moves_everything() -> None:
    assert isinstance(build_engine(Settings(), LAKEFS, STORE, lambda _: None), Engine)


def test_the_settings_are_the_threshold_and_no_session_is_opened_before_it_is_needed() -> None:
    settings = Settings(spark_min_objects=7, spark_min_bytes=9, transfer_threads=3)
    engine = build_engine(
        settings, LAKEFS, STORE, lambda _: None, lambda: pytest.fail("a session was opened")
    )
    assert isinstance(engine, ChosenBySize)
    assert engine.threshold == Threshold(7, 9)
    assert isinstance(engine.small, Engine)
    assert engine.small.threads == 3
