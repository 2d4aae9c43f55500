"""Filter the commands of a session: refuse what cannot be undone, note which writes fail.

A Connect client sends every change as a command through one method, which is replaced here on the
client of one session. Functions on Spark's side (``foreachBatch``) have clients of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from perago.errors import UnsupportedOperationError
from perago.spark.commands import NOTHING, CommandEffects, keep_place, read_command, read_plan
from perago.spark.labels import ungroup
from perago.spark.ledger import WriteLedger
from perago.spark.session import database_of, drop_database
from perago.spark.statements import Created, Written, address_in, table_key

_TABLE_HINT = (
    "Write with workspace.write(frame, path) and read with SQL on the path: SELECT … FROM "
    "{workspace.sql_path(path)}. A table by name needs LOCATION '{workspace.output(path)}', or "
    ".option('path', …) before saveAsTable, and a name without a database."
)
_PLACE_HINT = "Write with workspace.write(frame, path), or to the address workspace.output(path)."
_VIEW_HINT = "Use createOrReplaceTempView or CREATE TEMPORARY VIEW, which end with the session."
_STREAM_HINT = (
    "Read with spark.read and write with workspace.write; keep the position in the workspace "
    "(docs/spark-tasks.md, section on streams)."
)
_DYNAMIC_HINT = (
    "Use workspace.write(frame, path, mode='overwrite_partitions', partition_by=[…]), which "
    "replaces the partitions that the frame has and keeps the others."
)
# What the commit protocol for S3A says; the client gives it no type of its own.
_DYNAMIC = "does not support dynamicPartitionOverwrite"
_S3A = "s3a:"
_ABSOLUTE = re.compile(r"/|[A-Za-z][\w+.-]*:")


class CommandFilter:
    """Stands between the client of one session and its server."""

    def __init__(self, session: Any, ledger: WriteLedger, repositories: Iterable[str] = ()) -> None:
        """``repositories``: those that the attempt reads, and writes only where it is allowed."""
        self._session = session
        self._ledger = ledger
        self._repositories = set(repositories)
        self._output: str | None = None
        # Tables by name whose files are in the workspace, with their addresses.
        self._tables: dict[str, str] = {}
        # Those of them that are not in the catalog: dropped, or never created with success.
        self._missing: set[str] = set()
        # The last run of each streaming query, by its name, or by its id if it has none.
        self._queries: dict[str, Any] = {}
        client = session.client
        self._send: Callable[[Any], Any] = client.execute_command
        client.execute_command = self._around(client.execute_command, self._read)
        client.to_table = self._around(client.to_table, read_plan)
        client.clone = _refuse_clone

    def allow(self, output_uri: str) -> None:
        """From now on the session may write below this address."""
        self._output = _normal(output_uri)

    def failed_paths(self) -> list[str]:
        """Return where a write failed and was not made good, as paths in the workspace."""
        start = f"{self._output}/"
        return [target.removeprefix(start) for target in self._ledger.open()]

    def failed_queries(self) -> list[str]:
        """Return the streaming queries whose last run failed: its functions may have written.

        The server forgets a query an hour after its end; such a one is not known.
        """
        failed: list[str] = []
        for name, query in self._queries.items():
            with suppress(Exception):
                if query.exception() is not None:
                    failed.append(f"streaming query {name}")
        return failed

    def drop_tables(self) -> None:
        """Drop the names of this session's tables; their files stay. Never raises."""
        if self._tables:
            with suppress(Exception):
                self._run(drop_database(self._database))

    @property
    def _database(self) -> str:
        return database_of(self._session.client._session_id)

    def _around(
        self, send: Callable[..., Any], read: Callable[[Any], CommandEffects]
    ) -> Callable[..., Any]:
        def filtered(message: Any, *args: Any, **options: Any) -> Any:
            effects = read(message)
            if effects == NOTHING:
                return send(message, *args, **options)
            with self._ledger.writing():
                return self._change(effects, lambda: send(message, *args, **options))

        return filtered

    def _read(self, command: Any) -> CommandEffects:
        effects = read_command(command)
        keep_place(command, self._tables)
        return effects

    def _change(self, effects: CommandEffects, send: Callable[[], Any]) -> Any:
        self._refuse_stream(effects)
        self._missing |= {name[-1].lower() for name in effects.dropped}
        for item in effects.created:
            self._judge(item)
        for target in effects.written:
            self._refuse_lost(target)
        if effects.stream is not None:
            ungroup(self._session)
        with self._noted(effects):
            result = send()
        self._missing -= {table_key(item.name) for item in effects.created}
        if effects.stream is not None:
            self._remember_query(result[1])
        return result

    def _refuse_stream(self, effects: CommandEffects) -> None:
        stream = effects.stream
        if stream is None:
            return
        if stream.table is not None or any(map(self._is_inside, stream.addresses)):
            raise UnsupportedOperationError(
                "a streaming query cannot write to a table or keep its checkpoint in the "
                "workspace: its logs name the staging branch, which is deleted",
                hint=_STREAM_HINT,
            )

    def _remember_query(self, properties: Mapping[str, Any]) -> None:
        from pyspark.sql.connect.streaming.query import StreamingQuery

        started = properties["write_stream_operation_start_result"]
        run = started.query_id
        query = StreamingQuery(self._session, run.id, run.run_id)
        self._queries[started.name or run.id] = query

    def _judge(self, item: Created) -> None:
        """Refuse what outlives the session in the catalog; give a table of the workspace a name."""
        if item.kind == "pipeline":
            raise UnsupportedOperationError(
                f"a declarative pipeline writes tables of the database {item.name[0]}, which are "
                "no part of the workspace",
                hint="Write each of its tables with workspace.write.",
            )
        if item.kind not in {"table", "partition"}:
            raise UnsupportedOperationError(
                f"a {item.kind} ({'.'.join(item.name)}) is seen by every session of the server "
                "and is no part of the workspace",
                hint=_VIEW_HINT,
            )
        name = table_key(item.name)
        if item.location is None and name in self._tables.keys() - self._missing:
            return
        if item.location is None or not self._is_inside(item.location):
            what = "table" if item.kind == "table" else "partition of the table"
            raise UnsupportedOperationError(
                f"the {what} {name} would not be in the workspace, and not be published",
                hint=_TABLE_HINT,
            )
        if item.kind == "partition" or address_in(item.name) is not None:
            return
        if len(item.name) != 1:
            raise UnsupportedOperationError(
                f"the table {name} would stay in a catalog that all sessions share",
                hint=_TABLE_HINT,
            )
        self._use_own_database()
        self._tables[name] = _normal(item.location)
        self._missing.add(name)  # until it is created

    def _refuse_lost(self, target: Written) -> None:
        """Refuse files that an author takes for the workspace's, and that nothing publishes.

        Files elsewhere (another store, a folder) are meant: they are the author's own affair.
        """
        address = target.location
        if not address:
            return
        if self._is_on_another_ref(address):
            problem = f"{address} is not on the attempt's staging branch"
        elif target.in_files and not _ABSOLUTE.match(address):
            problem = f"the relative path {address} is a folder of the Spark server"
        else:
            return
        raise UnsupportedOperationError(
            f"{problem}: what is written there would not be published", hint=_PLACE_HINT
        )

    def _use_own_database(self) -> None:
        """Other sessions may have tables of the same names: each has a database of its own."""
        if not self._tables:
            self._run(f"CREATE DATABASE IF NOT EXISTS {self._database}")
        self._run(f"USE {self._database}")

    def _run(self, statement: str) -> None:
        """Run a statement of Perago's own, which the watch does not check."""
        from pyspark.sql.connect.plan import SQL

        self._send(SQL(statement, [], {}, []).command(self._session.client))

    @contextmanager
    def _noted(self, effects: CommandEffects) -> Iterator[None]:
        targets = [
            (_normal(f"{address}/{item.folder}"), item.effect)
            for item in effects.written
            if (address := item.location or self._tables.get(table_key(item.name)))
            and self._is_inside(address)
        ]
        try:
            yield
        except Exception as error:
            for target, effect in targets:
                self._ledger.failed(target, effect)
            if _DYNAMIC in str(error):
                raise UnsupportedOperationError(
                    "Spark's dynamic partition overwrite (partitionOverwriteMode=dynamic) writes "
                    "to another place and renames, which LakeFS can only do by copying",
                    hint=_DYNAMIC_HINT,
                ) from error
            raise
        for target, effect in targets:
            self._ledger.succeeded(target, effect)

    def _is_inside(self, address: str) -> bool:
        output, address = self._output, _normal(address)
        return output is not None and (address == output or address.startswith(f"{output}/"))

    def _is_on_another_ref(self, address: str) -> bool:
        """Whether it is in a repository of the attempt, and not on its staging branch."""
        here, there = (self._output or "").split("/"), _normal(address).split("/")
        if there[0] != _S3A or self._repositories.isdisjoint(there[2:3]):
            return False
        return there[2:4] != here[2:4]


def _normal(address: str) -> str:
    """Write an address as Hadoop resolves it: without ``..``, repeated slashes and one at its end.

    With ``..`` it may lead to another branch.
    """
    scheme, sign, rest = address.partition("://")
    parts: list[str] = []
    for part in (rest if sign else scheme).split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return f"{scheme}://{'/'.join(parts)}" if sign else "/" + "/".join(parts)


def _refuse_clone(*_: Any) -> NoReturn:
    raise UnsupportedOperationError(
        "a cloned session has no command filter: what it runs and what failed in it is not known",
        hint="Use workspace.spark itself, also in threads.",
    )
