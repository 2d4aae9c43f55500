"""Which later write makes a failed one good."""

from __future__ import annotations

import pytest

from perago.errors import UnfinishedOperationError
from perago.spark.ledger import Effect, WriteLedger

ADDS, PARTITIONS, REPLACES = Effect.ADDS, Effect.REPLACES_PARTITIONS, Effect.REPLACES


@pytest.mark.parametrize(
    ("failed", "succeeded"),
    [
        (ADDS, ADDS),
        (ADDS, PARTITIONS),
        (ADDS, REPLACES),
        (PARTITIONS, PARTITIONS),
        (PARTITIONS, REPLACES),
        (REPLACES, REPLACES),
    ],
)
def test_a_write_that_does_as_much_makes_a_failed_one_good(
    failed: Effect, succeeded: Effect
) -> None:
    ledger = WriteLedger()
    ledger.failed("s3a://r/b/t", failed)
    assert ledger.open() == ["s3a://r/b/t"]
    ledger.succeeded("s3a://r/b/t", succeeded)
    assert ledger.open() == []


@pytest.mark.parametrize(
    ("failed", "succeeded"), [(REPLACES, ADDS), (REPLACES, PARTITIONS), (PARTITIONS, ADDS)]
)
def test_after_a_failed_overwrite_an_append_does_not(failed: Effect, succeeded: Effect) -> None:
    ledger = WriteLedger()
    ledger.failed("s3a://r/b/t", failed)
    # The lesser failure of the same target does not hide the greater one.
    ledger.failed("s3a://r/b/t", ADDS)
    ledger.succeeded("s3a://r/b/t", succeeded)
    assert ledger.open() == ["s3a://r/b/t"]


def test_an_overwrite_makes_good_what_failed_below_it_and_nothing_beside_it() -> None:
    ledger = WriteLedger()
    for target in ("s3a://r/b/t/day=1", "s3a://r/b/t2", "s3a://r/b"):
        ledger.failed(target, REPLACES)
    ledger.succeeded("s3a://r/b/t", ADDS)
    assert len(ledger.open()) == 3
    ledger.succeeded("s3a://r/b/t", REPLACES)
    assert ledger.open() == ["s3a://r/b", "s3a://r/b/t2"]


def test_once_closed_it_refuses_writes_and_tells_how_many_are_under_way() -> None:
    ledger = WriteLedger()
    with ledger.writing():
        pass
    with ledger.writing(), ledger.writing():
        assert ledger.close() == 2
        with (
            pytest.raises(UnfinishedOperationError, match="a thread that it left"),
            ledger.writing(),
        ):
            raise AssertionError
    assert ledger.close() == 0
