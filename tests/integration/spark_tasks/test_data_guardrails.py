"""Data guardrails on real data: each that holds, and each that does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perago import (
    SparkWorkspace,
    require_not_null,
    require_rows,
    require_schema,
    require_unique,
)
from perago.errors import GuardrailViolation
from perago.protocol.outcome import Completed, Failed
from perago.spark.executions import ConnectExecution
from perago.spark.session import open_session
from perago.tasks.guardrails import Guardrail, check_spark
from support.definitions import no_warning
from support.real_world import Servers
from support.spark_world import ALSO_ON_A_CLUSTER, EVENTS, RealSparkWorld, Rows, clean

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]

HOLD: list[Guardrail] = [
    require_schema("raw", "user STRING, id LONG, amount BIGINT"),
    require_schema("raw", {"id": "bigint", "user": "string", "amount": "bigint"}),
    require_schema("raw", {"id": "bigint"}, allow_extra=True),
    require_rows("raw", min=len(EVENTS), max=len(EVENTS)),
    require_rows("raw/part-0.parquet", min=1),
    require_not_null("raw", ["id", "user"]),
    require_not_null("gaps", "id"),
    require_unique("raw", "id"),
    require_unique("raw", ["user", "amount"]),
    require_rows("lines", min=2, max=2, format="text"),
    require_unique("odd", ["a b", "count"]),
]
BROKEN: list[tuple[Guardrail, str]] = [
    (require_schema("raw", {"id": "int"}, allow_extra=True), "id is bigint, not int"),
    (require_schema("raw", "id BIGINT, user STRING"), "amount is not in the schema"),
    (require_schema("raw", "id BIGINT, more DATE"), "more is missing"),
    (require_rows("raw", min=7), "raw has 6 rows, at least 7 required"),
    (require_rows("raw", max=5), "raw has 6 rows, at most 5 allowed"),
    (require_not_null("gaps", ["id", "user"]), "nulls in user: 2"),
    (require_not_null("raw", "nothing"), "raw has no column 'nothing'; it has 'id'"),
    (
        require_unique("raw", "user", show_values=True),
        "raw is not unique in 'user'; for example: user='u",
    ),
    (require_unique("gaps", "user", show_values=True), "user=None"),
    (require_unique("odd", "count", show_values=True), "count=1"),
    (require_rows("missing", min=0), "required data is missing: missing"),
    (require_rows("ra", min=0), "required data is missing: ra"),
]


@pytest.fixture(scope="module")
def workspace(
    servers: Servers, spark_remote: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkWorkspace]:
    """One commit and one session for all cases."""
    world = RealSparkWorld(servers, tmp_path_factory.mktemp("root"), remote=spark_remote)
    gaps: Rows = [{"id": 1, "user": "u"}, {"id": 2, "user": None}, {"id": 3, "user": None}]
    world.put_table("main", "data/gaps/part-0.parquet", gaps)
    odd = [{"a b": 1, "count": 1}, {"a b": 2, "count": 1}]
    world.put_table("main", "data/odd/part-0.parquet", odd)
    ref = world.commit("main", {"data/lines/a.txt": "one\ntwo\n"})
    session = ConnectExecution(
        open_session(spark_remote, world.repository), servers.objects, world.repository, "data"
    )
    yield session.workspace(ref)
    session.close()


@pytest.mark.parametrize("guardrail", HOLD, ids=repr)
def test_a_guardrail_that_holds_says_nothing(
    workspace: SparkWorkspace, guardrail: Guardrail
) -> None:
    check_spark([guardrail], workspace, no_warning)


@pytest.mark.parametrize(("guardrail", "text"), BROKEN, ids=lambda it: str(it)[:60])
def test_a_guardrail_that_is_broken_says_what_it_found(
    workspace: SparkWorkspace, guardrail: Guardrail, text: str
) -> None:
    with pytest.raises(GuardrailViolation) as caught:
        check_spark([guardrail], workspace, no_warning)
    assert text in str(caught.value)


def test_no_value_of_a_row_is_in_a_message_unless_asked_for(workspace: SparkWorkspace) -> None:
    with pytest.raises(GuardrailViolation) as caught:
        check_spark([require_unique("raw", "user")], workspace, no_warning)
    assert str(caught.value) == "raw is not unique in 'user'"


@ALSO_ON_A_CLUSTER
def test_they_run_on_the_input_and_on_the_staged_commit(world: RealSparkWorld) -> None:
    world.start()
    pre = [require_rows("raw", min=6), require_not_null("raw", "id")]
    post = [require_schema("clean", "id BIGINT, amount BIGINT"), require_rows("clean", max=5)]
    outcome, _ = world.attempt(world.spark_job(clean, pre=pre, post=post))
    assert isinstance(outcome, Completed), outcome


@ALSO_ON_A_CLUSTER
def test_a_broken_one_after_the_body_publishes_nothing(world: RealSparkWorld) -> None:
    world.start()
    outcome, _ = world.attempt(world.spark_job(clean, post=[require_rows("clean", min=6)]))
    assert isinstance(outcome, Failed)
    assert outcome.reason == ("PostGuardrailViolation: clean has 5 rows, at least 6 required")
    world.assert_at(world.ref)
