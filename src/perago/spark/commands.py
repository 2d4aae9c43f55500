"""What a command of Spark Connect writes, creates and starts, before it is sent.

Every way to change something goes through a command: the writers of a frame, SQL, streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perago.spark.ledger import Effect
from perago.spark.statements import (
    Created,
    Written,
    address_in,
    read_name,
    read_statement,
    table_key,
)


@dataclass(frozen=True, slots=True)
class Stream:
    """A streaming query: its sink and its checkpoint, where they are addresses."""

    addresses: tuple[str, ...]
    table: str | None


@dataclass(frozen=True, slots=True)
class CommandEffects:
    """What a command changes, as far as Perago looks at it."""

    created: tuple[Created, ...] = ()
    written: tuple[Written, ...] = ()
    dropped: tuple[tuple[str, ...], ...] = ()
    stream: Stream | None = None


NOTHING = CommandEffects()


def read_command(command: Any) -> CommandEffects:
    """Read a command of the protocol's messages (``pyspark.sql.connect.proto.Command``)."""
    kind = command.WhichOneof("command_type")
    read = _READERS.get(kind)
    return NOTHING if read is None else read(getattr(command, kind))


def keep_place(command: Any, addresses: Mapping[str, str]) -> None:
    """Tell a ``saveAsTable`` that overwrites where the table is, if the author did not.

    Spark drops the table, and makes one in its warehouse if it is told no place.
    """
    operation = command.write_operation
    if not operation.HasField("table") or _inserts(operation) or _path(operation.options):
        return
    name = table_key(read_name(operation.table.table_name))
    if operation.mode == type(operation).SAVE_MODE_OVERWRITE and name in addresses:
        operation.options["path"] = addresses[name]


def read_plan(plan: Any) -> CommandEffects:
    """Read a plan that is executed as a query: a call of ``catalog.createTable`` is one."""
    if plan.WhichOneof("op_type") != "root" or plan.root.WhichOneof("rel_type") != "catalog":
        return NOTHING
    kind = plan.root.catalog.WhichOneof("cat_type")
    if kind not in {"create_table", "create_external_table"}:
        return NOTHING
    call = getattr(plan.root.catalog, kind)
    name = read_name(call.table_name)
    return CommandEffects(created=(Created("table", name, call.path or _path(call.options)),))


def sql_text(command: Any) -> str:
    """Return the text of an SQL command, also of one with frames as its arguments."""
    relation = command.input
    if relation.WhichOneof("rel_type") == "with_relations":
        relation = relation.with_relations.root
    return str(relation.sql.query or command.sql)


def _write(operation: Any) -> CommandEffects:
    overwrites = operation.mode == type(operation).SAVE_MODE_OVERWRITE
    effect = Effect.REPLACES if overwrites else Effect.ADDS
    if not operation.HasField("table"):
        location = operation.path or _path(operation.options)
        in_files = operation.source.lower() in _FILE_FORMATS
        return CommandEffects(written=(Written((), location, effect, in_files=in_files),))
    name = read_name(operation.table.table_name)
    location = _path(operation.options) or address_in(name)
    written = (Written(name, location, effect),)
    if _inserts(operation):
        return CommandEffects(written=written)
    return CommandEffects(created=(Created("table", name, location),), written=written)


def _inserts(operation: Any) -> bool:
    table = operation.table
    return bool(table.save_method == type(table).TABLE_SAVE_METHOD_INSERT_INTO)


def _write_v2(operation: Any) -> CommandEffects:
    kind = type(operation)
    name = read_name(operation.table_name)
    # Only here Spark takes a property for it; the other writers know no such option.
    location = _path(operation.options) or _value(operation.table_properties, "location")
    location = location or address_in(name)
    partitions = operation.mode == kind.MODE_OVERWRITE_PARTITIONS
    adds = operation.mode == kind.MODE_APPEND
    effect = Effect.REPLACES_PARTITIONS if partitions else Effect.REPLACES
    written = (Written(name, location, Effect.ADDS if adds else effect),)
    if operation.mode in {kind.MODE_CREATE, kind.MODE_REPLACE, kind.MODE_CREATE_OR_REPLACE}:
        return CommandEffects(created=(Created("table", name, location),), written=written)
    return CommandEffects(written=written)


def _merge(operation: Any) -> CommandEffects:
    name = read_name(operation.target_table_name)
    return CommandEffects(written=(Written(name, address_in(name), Effect.ADDS),))


def _sql(command: Any) -> CommandEffects:
    statement = read_statement(sql_text(command))
    filled = (
        Written(it.name, it.location, Effect.REPLACES)
        for it in statement.created
        if it.kind == "table" and it.with_data
    )
    return CommandEffects(statement.created, (*filled, *statement.written), statement.dropped)


def _ml(command: Any) -> CommandEffects:
    """Read how a model, or a part of one, is saved."""
    if command.WhichOneof("command") == "write":
        effect = Effect.REPLACES if command.write.should_overwrite else Effect.ADDS
        return CommandEffects(written=(Written((), command.write.path, effect),))
    # Of a pipeline the server deletes what is there; then its parts are written one by one.
    deleted = (
        Written((), method.args[0].param.string, Effect.REPLACES)
        for method in command.fetch.methods
        if method.method == "handleOverwrite"
    )
    return CommandEffects(written=tuple(deleted))


def _view(command: Any) -> CommandEffects:
    return CommandEffects(
        created=(Created("global view", (command.name,)),) if command.is_global else ()
    )


def _pipeline(command: Any) -> CommandEffects:
    database = command.create_dataflow_graph.default_database or "default"
    return CommandEffects(created=(Created("pipeline", (database,)),))


def _stream(start: Any) -> CommandEffects:
    options = {key.lower(): value for key, value in start.options.items()}
    found = (start.path, options.get("path"), options.get("checkpointlocation"))
    return CommandEffects(stream=Stream(tuple(filter(None, found)), start.table_name or None))


def _path(options: Mapping[str, str]) -> str | None:
    """Return the address in the options of a writer, whose keys have no case."""
    return _value(options, "path")


def _value(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name), None)


# Spark's own, and Delta; without a name it is the session's default, which is one of them.
_FILE_FORMATS = {"", "avro", "csv", "delta", "json", "orc", "parquet", "text", "xml"}
_READERS: dict[str, Callable[[Any], CommandEffects]] = {
    "write_operation": _write,
    "write_operation_v2": _write_v2,
    "merge_into_table_command": _merge,
    "sql_command": _sql,
    "ml_command": _ml,
    "create_dataframe_view": _view,
    "write_stream_operation_start": _stream,
    "pipeline_command": _pipeline,
}
