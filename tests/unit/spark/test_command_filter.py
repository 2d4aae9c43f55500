"""What a session is allowed to do, with pyspark's own client and nothing behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyspark.sql.connect.proto as proto
import pytest
from pyspark.errors.exceptions.connect import UnknownException
from pyspark.ml.connect.readwrite import RemoteMLWriter
from pyspark.ml.feature import Tokenizer
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph
from pyspark.sql import SparkSession

from perago.errors import UnfinishedOperationError, UnsupportedOperationError
from perago.spark.command_filter import CommandFilter
from perago.spark.ledger import WriteLedger
from perago.spark.session import _connect, database_of, forget, session_id

OUT = "s3a://repo/staging/data"
Act = Callable[[SparkSession], Any]


class Server:
    """Stands for the server: keeps the kinds of commands, and fails those it is told to."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.kinds: list[str] = []
        self.paths: list[str | None] = []
        self.error: Exception | None = None
        self.refused: str | None = None
        self.runs = 0
        self.failed_runs: set[str] = set()

    def __call__(self, command: Any, *_: Any, **__: Any) -> tuple[None, dict[str, Any], None]:
        kind = command.WhichOneof("command_type")
        self.kinds.append(kind)
        if kind == "write_operation":
            self.paths.append(dict(command.write_operation.options).get("path"))
        if kind == "sql_command":
            self.statements.append(command.sql_command.input.sql.query)
        if self.error is not None:
            raise self.error
        if self.refused in self.statements[-1:]:
            raise UnknownException("no")
        return None, self._answer(command, kind), None

    def _answer(self, command: Any, kind: str) -> dict[str, Any]:
        """A query runs under its name; one that is named after a failure has failed."""
        if kind == "write_stream_operation_start":
            self.runs += 1
            started = proto.WriteStreamOperationStartResult()
            started.name = command.write_stream_operation_start.query_name
            started.query_id.id, started.query_id.run_id = "id", str(self.runs)
            return {"write_stream_operation_start_result": started}
        if kind == "streaming_query_command":
            found = proto.StreamingQueryCommandResult()
            if command.streaming_query_command.query_id.run_id in self.failed_runs:
                found.exception.exception_message = "StreamingQueryException: no"
            return {"streaming_query_command_result": found}
        return {}


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def session(server: Server) -> Iterator[SparkSession]:
    opened = _connect("sc://localhost:1", "e")
    opened.client.execute_command = server
    # It would ask the server how to compress a plan.
    opened.client.get_configs = lambda *_: ("-1", "NONE")
    yield opened
    forget(opened)


@pytest.fixture
def command_filter(session: SparkSession) -> CommandFilter:
    made = CommandFilter(session, WriteLedger(), {"repo", "dims"})
    made.allow(f"{OUT}/")
    return made


def fail(server: Server, act: Act, session: SparkSession, message: str = "no") -> None:
    server.error = UnknownException(message)
    with pytest.raises(UnknownException):
        act(session)
    server.error = None


WRITES: dict[str, Act] = {
    "save": lambda it: it.range(3).write.mode("overwrite").save(f"{OUT}/t"),
    "option": lambda it: it.range(3).write.mode("overwrite").option("PATH", f"{OUT}//t/").save(),
    "dots": lambda it: it.range(3).write.mode("overwrite").save(f"{OUT}/../data/./s/../t"),
    "directory": lambda it: it.sql(f"INSERT OVERWRITE DIRECTORY '{OUT}/t' USING orc SELECT 1"),
    "kwargs": lambda it: it.sql(
        "INSERT OVERWRITE DIRECTORY '" + OUT + "/t' USING orc TABLE {frame}", frame=it.range(3)
    ),
    "writeTo": lambda it: it.range(3).writeTo(f"delta.`{OUT}/t`").replace(),
    "create": lambda it: it.sql(f"CREATE TABLE delta.`{OUT}/t` AS SELECT 1"),
    "model": lambda it: RemoteMLWriter.saveInstance(
        Tokenizer(), f"{OUT}/t", it, shouldOverwrite=True
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_failed_write_is_open_until_the_same_place_is_written(
    command_filter: CommandFilter, server: Server, session: SparkSession, write: Act
) -> None:
    fail(server, write, session)
    assert command_filter.failed_paths() == ["t"]
    session.range(3).write.mode("append").save(f"{OUT}/t")
    session.range(3).write.mode("overwrite").save(f"{OUT}/other")
    assert command_filter.failed_paths() == ["t"]
    write(session)
    assert command_filter.failed_paths() == []


def test_a_model_in_parts_that_failed_is_made_good_by_a_new_one(
    command_filter: CommandFilter, server: Server, session: SparkSession
) -> None:
    def delete(it: SparkSession) -> None:
        """Send what the writer of a pipeline sends first."""
        command = proto.Command()
        method = command.ml_command.fetch.methods.add(method="handleOverwrite")
        method.args.add().param.string = f"{OUT}/t"
        method.args.add().param.boolean = True
        it.client.execute_command(command)

    def write_part(it: SparkSession) -> None:
        RemoteMLWriter.saveInstance(Tokenizer(), f"{OUT}/t/stages/0_a", it)

    fail(server, write_part, session)
    assert command_filter.failed_paths() == ["t/stages/0_a"]
    delete(session)
    assert command_filter.failed_paths() == []
    fail(server, delete, session)
    assert command_filter.failed_paths() == ["t"]


def test_what_fails_outside_of_the_workspace_leaves_nothing_open(
    command_filter: CommandFilter, server: Server, session: SparkSession
) -> None:
    for act in (
        lambda it: it.range(3).write.save("s3a://elsewhere/t"),
        lambda it: it.range(3).write.save("/tmp/t"),
        # What is no format of files may take anything for its path.
        lambda it: it.range(3).write.format("warehouse").save("project.table"),
        lambda it: it.range(3).write.save(f"{OUT}base/t"),
        lambda it: it.range(3).write.insertInto("somewhere"),
        lambda it: it.sql(f"TABLE parquet.`{OUT}/t`"),
        lambda it: it.range(3).createOrReplaceTempView("v"),
    ):
        fail(server, act, session)
    assert command_filter.failed_paths() == []


REFUSED: dict[str, Act] = {
    "saveAsTable": lambda it: it.range(3).write.saveAsTable("t"),
    "saveAsTable elsewhere": lambda it: it.range(3).write.saveAsTable("t", path="/tmp/t"),
    "in a shared database": lambda it: it.range(3).write.saveAsTable("db.t", path=f"{OUT}/t"),
    "saveAsTable with an option that Spark does not know": lambda it: (
        it.range(3).write.option("location", f"{OUT}/t").saveAsTable("t")
    ),
    "writeTo": lambda it: it.range(3).writeTo("t").createOrReplace(),
    "writeTo elsewhere": lambda it: it.range(3).writeTo("delta.`/tmp/t`").create(),
    "CREATE TABLE": lambda it: it.sql("CREATE TABLE t (id INT)"),
    "CREATE TABLE elsewhere": lambda it: it.sql("CREATE TABLE t (id INT) LOCATION '/tmp/t'"),
    "CREATE TABLE on another branch": lambda it: it.sql(
        f"CREATE TABLE t (id INT) USING csv LOCATION '{OUT}/../../main/t'"
    ),
    "a relative path": lambda it: it.range(3).write.parquet("out"),
    "a relative path in the default format": lambda it: it.range(3).write.save("./out"),
    "a relative path in SQL": lambda it: it.sql(
        "INSERT OVERWRITE DIRECTORY 'out' USING csv SELECT 1"
    ),
    "another branch": lambda it: it.range(3).write.parquet("s3a://repo/main/data/t"),
    "an input": lambda it: it.range(3).write.parquet("s3a://dims/main/t"),
    "another branch by dots": lambda it: it.range(3).write.orc(f"{OUT}/../../main/t"),
    "a model on another branch": lambda it: RemoteMLWriter.saveInstance(
        Tokenizer(), "s3a://repo/main/data/t", it
    ),
    "SET LOCATION": lambda it: it.sql("ALTER TABLE t SET LOCATION '/tmp/t'"),
    "ADD PARTITION": lambda it: it.sql("ALTER TABLE t ADD PARTITION (d = 1) LOCATION '/tmp/t'"),
    "a later partition": lambda it: it.sql(
        f"ALTER TABLE t ADD PARTITION (d = 1) LOCATION '{OUT}/t' PARTITION (d = 2) LOCATION '/t'"
    ),
    "catalog": lambda it: it.catalog.createTable("t", path="/tmp/t"),
    "view": lambda it: it.sql("CREATE VIEW v AS SELECT 1"),
    "global view": lambda it: it.range(3).createOrReplaceGlobalTempView("v"),
    "database": lambda it: it.sql("CREATE DATABASE d"),
    "stream": lambda it: stream(it).start(f"{OUT}/t"),
    "checkpoint": lambda it: stream(it).option("checkpointLocation", f"{OUT}/c").start("/tmp/t"),
    "stream to a table": lambda it: stream(it).toTable("t"),
    "clone": lambda it: it.cloneSession(),
    "pipeline": lambda it: create_dataflow_graph(it, None, None, None),
}


def stream(session: SparkSession) -> Any:
    return session.readStream.format("rate").load().writeStream


def test_a_streaming_query_counts_by_its_last_run(
    command_filter: CommandFilter, server: Server, session: SparkSession
) -> None:
    for name in ("one", "two", "two", "one"):
        stream(session).format("console").queryName(name).start()
    server.failed_runs = {"1", "2", "4"}
    assert command_filter.failed_queries() == ["streaming query one"]
    server.error = UnknownException("forgotten")
    assert command_filter.failed_queries() == []


@pytest.mark.usefixtures("command_filter")
@pytest.mark.parametrize("act", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_part_of_a_transaction_is_refused_and_not_sent(
    server: Server, session: SparkSession, act: Act
) -> None:
    with pytest.raises(UnsupportedOperationError) as caught:
        act(session)
    assert caught.value.hint.endswith(".")
    assert server.kinds == []


def test_without_an_output_no_address_is_in_the_workspace(session: SparkSession) -> None:
    CommandFilter(session, WriteLedger())
    with pytest.raises(UnsupportedOperationError):
        session.sql(f"CREATE TABLE t (id INT) LOCATION '{OUT}/t'")


def test_a_read_only_body_writes_to_no_branch(server: Server, session: SparkSession) -> None:
    CommandFilter(session, WriteLedger(), {"repo"})
    with pytest.raises(UnsupportedOperationError, match="would not be published"):
        session.range(3).write.parquet("s3a://repo/main/data/t")
    assert server.kinds == []
    session.range(3).write.parquet("s3a://another/main/data/t")
    assert server.kinds != []


def test_tables_of_the_workspace_get_a_database_that_is_dropped(
    command_filter: CommandFilter, server: Server, session: SparkSession
) -> None:
    database = database_of(session_id("e"))
    command_filter.drop_tables()
    assert server.kinds == []
    session.range(3).write.saveAsTable("one", path=f"{OUT}/one")
    session.sql(f"CREATE TABLE two USING orc LOCATION '{OUT}/two' AS SELECT 1")
    # Its place is known by now, also when it fails.
    fail(server, lambda it: it.range(3).write.mode("overwrite").saveAsTable("ONE"), session)
    fail(server, lambda it: it.sql("INSERT INTO two VALUES (1)"), session)
    assert command_filter.failed_paths() == ["one", "two"]
    server.error = UnknownException("down")
    command_filter.drop_tables()
    assert [it for it in server.statements if "TABLE" not in it and "INSERT" not in it] == [
        f"CREATE DATABASE IF NOT EXISTS {database}",
        f"USE {database}",
        f"USE {database}",
        f"DROP DATABASE IF EXISTS {database} CASCADE",
    ]


@pytest.mark.usefixtures("command_filter")
def test_a_table_of_the_workspace_stays_there_when_it_is_overwritten(
    server: Server, session: SparkSession
) -> None:
    frame = session.range(3)
    frame.write.saveAsTable("t", path=f"{OUT}//t/")
    # Spark drops it, and would create one in its warehouse.
    frame.write.mode("overwrite").saveAsTable("T")
    frame.write.mode("append").saveAsTable("t")
    frame.write.mode("overwrite").insertInto("t")
    frame.write.mode("overwrite").saveAsTable("t", path=f"{OUT}/other")
    frame.write.mode("overwrite").saveAsTable("t")
    here, other = f"{OUT}/t", f"{OUT}/other"
    assert server.paths == [f"{OUT}//t/", here, None, None, other, other]


def test_a_table_whose_location_is_set_is_known_there(
    command_filter: CommandFilter, server: Server, session: SparkSession
) -> None:
    session.sql(f"CREATE TABLE t (id INT, d INT) USING csv LOCATION '{OUT}/t'")
    session.sql(f"ALTER TABLE t ADD PARTITION (d = 1) LOCATION '{OUT}/one'")
    fail(server, lambda it: it.sql("INSERT INTO t VALUES (1)"), session)
    assert command_filter.failed_paths() == ["t"]
    session.sql(f"ALTER TABLE t SET LOCATION '{OUT}/s'")
    fail(server, lambda it: it.sql("INSERT INTO t VALUES (1)"), session)
    assert command_filter.failed_paths() == ["s", "t"]


CREATE = f"CREATE TABLE t (id INT) USING csv LOCATION '{OUT}/t'"
MISSING: dict[str, Act] = {
    "dropped": lambda it: it.sql("DROP TABLE IF EXISTS t"),
    "dropped with its database": lambda it: it.sql("DROP TABLE `d`.T"),
    "renamed": lambda it: it.sql("ALTER TABLE t RENAME TO s"),
}


@pytest.mark.usefixtures("command_filter")
@pytest.mark.parametrize("lose", MISSING.values(), ids=MISSING)
def test_the_name_of_a_table_that_is_gone_gives_no_place_to_another_one(
    session: SparkSession, lose: Act
) -> None:
    session.sql(CREATE)
    session.sql("CREATE OR REPLACE TABLE t USING delta AS SELECT 1")
    lose(session)
    again: list[Act] = [
        lambda it: it.sql("CREATE TABLE t AS SELECT 1"),
        lambda it: it.range(3).write.mode("overwrite").saveAsTable("t"),
        lambda it: it.range(3).writeTo("t").create(),
        lambda it: it.catalog.createTable("t"),
    ]
    for act in again:
        with pytest.raises(UnsupportedOperationError, match="would not be in the workspace"):
            act(session)
    session.sql(CREATE)
    session.sql("CREATE TABLE IF NOT EXISTS t (id INT)")


@pytest.mark.usefixtures("command_filter")
def test_nor_does_that_of_a_table_that_could_not_be_created(
    server: Server, session: SparkSession
) -> None:
    session.sql(CREATE.replace("t ", "s "))
    server.refused = CREATE
    with pytest.raises(UnknownException):
        session.sql(CREATE)
    with pytest.raises(UnsupportedOperationError):
        session.sql("CREATE TABLE t AS SELECT 1")


def test_a_partition_that_failed_is_made_good_by_the_same_one_or_by_all(
    command_filter: CommandFilter, server: Server, session: SparkSession
) -> None:
    session.sql(f"CREATE TABLE t (id INT, d INT) USING csv LOCATION '{OUT}/t'")
    first, second = (f"INSERT OVERWRITE t PARTITION (d = {d}) SELECT 1" for d in (1, 2))
    for good in (first, "INSERT OVERWRITE TABLE t SELECT 1, 1"):
        fail(server, lambda it: it.sql(first), session)
        session.sql(second)
        assert command_filter.failed_paths() == ["t/d=1"]
        session.sql(good)
        assert command_filter.failed_paths() == []


def test_sparks_dynamic_partition_overwrite_gets_an_error_with_the_way_out(
    command_filter: CommandFilter, server: Server, session: SparkSession
) -> None:
    server.error = UnknownException(
        "PathOutputCommitter does not support dynamicPartitionOverwrite: MagicS3GuardCommitter"
    )
    with pytest.raises(UnsupportedOperationError, match="partitionOverwriteMode") as caught:
        session.range(3).write.mode("overwrite").partitionBy("id").save(f"{OUT}/t")
    assert "overwrite_partitions" in caught.value.hint
    assert command_filter.failed_paths() == ["t"]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_thread_that_the_body_left_writes_nothing_after_the_check(
    server: Server, session: SparkSession, write: Act
) -> None:
    ledger = WriteLedger()
    CommandFilter(session, ledger).allow(f"{OUT}/")
    write(session)
    sent = len(server.kinds)
    assert ledger.close() == 0
    with pytest.raises(UnfinishedOperationError):
        write(session)
    # What reads goes on: guardrails do.
    session.sql("SELECT 1")
    session.range(3).createOrReplaceTempView("v")
    assert server.kinds[sent:] == ["sql_command", "create_dataframe_view"]


def test_a_write_that_has_not_reached_the_server_is_under_way(
    server: Server, session: SparkSession
) -> None:
    ledger = WriteLedger()
    counts: list[int] = []

    def send(*_: Any, **__: Any) -> tuple[None, dict[str, Any], None]:
        counts.append(ledger.close())
        return None, {}, None

    session.client.execute_command = send
    CommandFilter(session, ledger).allow(f"{OUT}/")
    session.range(3).write.mode("overwrite").save(f"{OUT}/t")
    assert counts == [1]
