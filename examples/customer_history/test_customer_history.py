"""A customer moves, another one is new, and the third stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from customer_history.tasks import HistoryResult, customer_history
from perago.testing import TaskWorkspace

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

DATA = Path(__file__).parent / "data"
FIRST, SECOND = "2026-03-13", "2026-03-14"


def test_a_customer_that_moves_has_two_rows(
    perago_workspace: TaskWorkspace, perago_spark: SparkSession
) -> None:
    if "delta" not in perago_spark.conf.get("spark.sql.extensions", ""):
        pytest.skip("this Spark has no Delta: name one that has with SPARK_REMOTE")
    space = perago_workspace
    for day, expected in ((FIRST, (2, 2)), (SECOND, (3, 4)), (SECOND, (3, 4))):
        file = f"landing/{day}.csv"
        space.put({file: (DATA / day / "crm" / file).read_text()})
        result = space.run(customer_history, {"day": day}, spark=perago_spark).result
        assert result == HistoryResult(customers=expected[0], rows=expected[1])
    table = perago_spark.read.load((space.folder / "customers").as_uri(), format="delta")
    rows = [(it.id, it.city, str(it.valid_from), str(it.valid_to)) for it in table.collect()]
    assert sorted(rows) == [
        (1, "London", FIRST, SECOND),
        (1, "Paris", SECOND, "None"),
        (2, "New York", FIRST, "None"),
        (3, "Manchester", SECOND, "None"),
    ]
