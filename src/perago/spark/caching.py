"""Remember what a session cached, and free it before the session ends.

Spark keeps cached data by its plan, for all sessions of the server and beyond the end of the one
that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from perago.spark.commands import sql_text
from perago.spark.statements import read_cached, read_name

_ATTRIBUTE = "perago_cached"


class SessionCache:
    """What the client of one session cached, through frames, the catalog and SQL."""

    def __init__(self, session: Any) -> None:
        self._client = session.client
        # By their serialized form: the same frame may be cached twice.
        self._relations: dict[bytes, Any] = {}
        self._tables: dict[tuple[str, ...], None] = {}
        self._analyze: Callable[..., Any] = self._client._analyze
        self._execute: Callable[..., Any] = self._client.execute_command
        self._fetch: Callable[..., Any] = self._client.to_table
        self._client._analyze = self._note_frame
        self._client.execute_command = self._note_statement
        self._client.to_table = self._note_call
        setattr(self._client, _ATTRIBUTE, self)

    def free(self) -> int:
        """Unpersist everything and return how much there was. Never raises."""
        relations, self._relations = self._relations, {}
        tables, self._tables = self._tables, {}
        for relation in relations.values():
            with suppress(Exception):
                self._analyze(method="unpersist", relation=relation, blocking=False)
        for name in tables:
            with suppress(Exception):
                self._uncache(name)
        return len(relations) + len(tables)

    def _uncache(self, name: tuple[str, ...]) -> None:
        from pyspark.sql.connect.plan import SQL

        quoted = ".".join("`" + part.replace("`", "``") + "`" for part in name)
        statement = f"UNCACHE TABLE IF EXISTS {quoted}"
        self._execute(SQL(statement, [], {}, []).command(self._client))

    def _note_frame(self, method: str, **arguments: Any) -> Any:
        # Before it is done: an interrupted request may have been carried out.
        if method == "persist":
            relation = arguments["relation"]
            self._relations[relation.SerializeToString()] = relation
        elif method == "unpersist":
            self._relations.pop(arguments["relation"].SerializeToString(), None)
        return self._analyze(method, **arguments)

    def _note_statement(self, command: Any, *arguments: Any, **options: Any) -> Any:
        if command.WhichOneof("command_type") == "sql_command":
            self._tables |= dict.fromkeys(read_cached(sql_text(command.sql_command)))
        return self._execute(command, *arguments, **options)

    def _note_call(self, plan: Any, *arguments: Any, **options: Any) -> Any:
        catalog = plan.root.catalog
        if catalog.WhichOneof("cat_type") == "cache_table":
            self._tables[read_name(catalog.cache_table.table_name)] = None
        return self._fetch(plan, *arguments, **options)


def free_cached(session: Any) -> int:
    """Free what a session cached; return how much there was. Never raises."""
    cached = getattr(session.client, _ATTRIBUTE, None)
    return cached.free() if isinstance(cached, SessionCache) else 0
