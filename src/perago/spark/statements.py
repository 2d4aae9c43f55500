"""What an SQL statement writes and what it creates in the catalog, as far as its text shows.

Spark has no call that says so before it runs a statement. This is not a parser: it finds the words
that begin a change and the name or the address after them, outside of strings and comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Literal

from perago.spark.ledger import Effect

_TOKEN = re.compile(
    r"""
    (?P<skip>--(?:\\\n|[^\r\n])*|\s+)
    |(?P<comment>/\*)
    |(?P<raw>[rR](?:'[^']*'|"[^"]*"))
    |(?P<string>'(?:\\.|''|[^'\\])*'|"(?:\\.|""|[^"\\])*")
    |(?P<quoted>`(?:``|[^`])*`)
    |(?P<word>[\w$]+)
    |(?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NOT_BEFORE_CREATE = {"OR", "SHOW", "GRANT", "EXPLAIN"}
_BEFORE_KIND = {"OR", "REPLACE", "GLOBAL", "TEMP", "TEMPORARY", "EXTERNAL", "LOCAL", "MATERIALIZED"}
_BEFORE_STATEMENT = {"BEGIN", "THEN", "ELSE", "DO", "LOOP", "REPEAT"}
_EVOLVING = ["WITH", "SCHEMA", "EVOLUTION"]
_NAMESPACES = {"DATABASE", "SCHEMA", "NAMESPACE"}

CatalogKind = Literal[
    "table", "partition", "view", "global view", "database", "function", "pipeline"
]


@dataclass(frozen=True, slots=True)
class Created:
    """Something that a statement creates or moves in the catalog, where it outlives the session.

    A partition has the name of its table.
    """

    kind: CatalogKind
    name: tuple[str, ...]
    # Of a table: where its files are, if the statement says so, and whether it writes some.
    location: str | None = None
    with_data: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """Data that a statement writes: at an address, or in a table of the catalog."""

    name: tuple[str, ...]
    location: str | None
    effect: Effect
    # Of the partitions that it replaces: ``day=1/hour=2``.
    folder: str = ""
    # Whether the address is one of files: a data source of another kind takes what it likes.
    in_files: bool = True


@dataclass(frozen=True, slots=True)
class Statement:
    """What the text of a statement (or of a script of several) says that it does."""

    created: tuple[Created, ...]
    written: tuple[Written, ...]
    # The names of tables that are dropped, or get another name.
    dropped: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "word" else ""

    @property
    def value(self) -> str:
        """The text without its quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        start = {"string": 1, "raw": 2}.get(self.kind)
        return self.text if start is None else self.text[start:-1]

    @property
    def is_string(self) -> bool:
        return self.kind in {"string", "raw"}


def read_statement(text: str) -> Statement:
    """Find what a statement creates and writes."""
    tokens = _tokens(text)
    created = (*_created(tokens), *_moved(tokens))
    return Statement(created, tuple(_written(tokens)), tuple(_dropped(tokens)))


def read_cached(text: str) -> list[tuple[str, ...]]:
    """Find the tables that a statement (or a script of several) caches."""
    tokens = _tokens(text)
    words = [token.word for token in tokens]
    found = []
    for at, word in enumerate(words):
        if word != "CACHE":
            continue
        table = at + 2 if words[at + 1 : at + 2] == ["LAZY"] else at + 1
        if words[table : table + 1] == ["TABLE"]:
            found.append(_name(tokens, table + 1))
    return [name for name in found if name]


def read_name(text: str) -> tuple[str, ...]:
    """Read the name of a table as Spark's methods take it: ``a.b`` or delta.`s3a://…`."""
    return _name(_tokens(text), 0)


def address_in(name: Sequence[str]) -> str | None:
    """Return the address in delta.`s3a://…`; None for the name of a table."""
    return name[-1] if len(name) > 1 and "/" in name[-1] else None


def table_key(name: Sequence[str]) -> str:
    """Return a name by which a table is known: Spark's have no case."""
    return ".".join(name).lower()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while found := _TOKEN.match(text, at):
        kind = str(found.lastgroup)
        at = _comment_end(text, at) if kind == "comment" else found.end()
        if kind not in {"skip", "comment"}:
            tokens.append(_Token(kind, found.group()))
    return tokens


def _comment_end(text: str, start: int) -> int:
    """Return where a comment in brackets ends; there may be others in it."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if not depth:
            return edge.end()
    return len(text)


def _created(tokens: Sequence[_Token]) -> Iterator[Created]:
    for start, token in enumerate(tokens):
        if token.word not in {"CREATE", "REPLACE"}:
            continue
        if start and tokens[start - 1].word in _NOT_BEFORE_CREATE:
            continue
        at, before = start + 1, set[str]()
        while at < len(tokens) and tokens[at].word in _BEFORE_KIND:
            before.add(tokens[at].word)
            at += 1
        kind = _kind(tokens[at].word if at < len(tokens) else "", before)
        if kind is not None:
            with_data = any(token.word == "AS" for token in tokens[at:])
            yield Created(kind, _name(tokens, at + 1), _location(tokens, at + 1), with_data)


def _dropped(tokens: Sequence[_Token]) -> Iterator[tuple[str, ...]]:
    for at, (first, second) in enumerate(pairwise(tokens)):
        if second.word != "TABLE" or first.word not in {"DROP", "ALTER"}:
            continue
        name = _name(tokens, at + 2)
        if name and (first.word == "DROP" or "RENAME" in {it.word for it in tokens[at:]}):
            yield name


def _moved(tokens: Sequence[_Token]) -> Iterator[Created]:
    """Find the places that ``ALTER TABLE`` gives to a table, or to partitions of it."""
    for at, (first, second) in enumerate(pairwise(tokens)):
        if (first.word, second.word) != ("ALTER", "TABLE"):
            continue
        name = _name(tokens, at + 2)
        rest = list(takewhile(lambda token: token.text != ";", tokens[at + 2 :]))
        in_partitions = any(token.word == "PARTITION" for token in rest)
        for key, value in pairwise(rest):
            if key.word == "LOCATION" and value.is_string:
                yield Created("partition" if in_partitions else "table", name, value.value)


def _kind(word: str, before: set[str]) -> CatalogKind | None:
    if word == "VIEW" and "GLOBAL" in before:
        return "global view"
    if before & {"TEMP", "TEMPORARY"}:
        return None
    if word in _NAMESPACES:
        return "database"
    return {"TABLE": "table", "VIEW": "view", "FUNCTION": "function"}.get(word)  # type: ignore[return-value]


def _written(tokens: Sequence[_Token]) -> Iterator[Written]:
    words = [token.word for token in tokens]
    for at, first in enumerate(words):
        then = at + 4 if words[at + 1 : at + 4] == _EVOLVING else at + 1
        second = words[then] if then < len(words) else ""
        if first == "INSERT" and second in {"INTO", "OVERWRITE"}:
            yield _inserted(tokens, then + 1, overwrites=second == "OVERWRITE")
        elif (first, second) in {("MERGE", "INTO"), ("DELETE", "FROM"), ("TRUNCATE", "TABLE")}:
            yield _named(tokens, then + 1, Effect.ADDS)
        elif first == "UPDATE" and second != "SET" and _begins(tokens, at):
            yield _named(tokens, then, Effect.ADDS)


def _begins(tokens: Sequence[_Token], at: int) -> bool:
    """Whether a statement begins here: the text, or one of a script."""
    return at == 0 or tokens[at - 1].text == ";" or tokens[at - 1].word in _BEFORE_STATEMENT


def _inserted(tokens: Sequence[_Token], at: int, *, overwrites: bool) -> Written:
    words = [token.word for token in tokens[at : at + 2]]
    if "DIRECTORY" in words:
        after = at + words.index("DIRECTORY") + 1
        literal = tokens[after : after + 1]
        path = literal[0].value if literal and literal[0].is_string else None
        return Written((), path or _location(tokens, after), Effect.REPLACES)
    at += words[:1] == ["TABLE"]
    if not overwrites:
        return _named(tokens, at, Effect.ADDS)
    name = _name(tokens, at)
    folder = _folder(tokens[at + 2 * len(name) - 1 :])
    effect = Effect.REPLACES_PARTITIONS if folder else Effect.REPLACES
    return Written(name, address_in(name), effect, folder)


def _folder(tokens: Sequence[_Token]) -> str:
    """Read the values in ``PARTITION (day = 1, hour)``; without any, all partitions are meant.

    Only right after the name: a window in the query has a PARTITION as well.
    """
    if not tokens or tokens[0].word != "PARTITION":
        return ""
    spec = takewhile(lambda token: token.text != ")", tokens[2:])
    items = "".join("\n" if token.text == "," else token.value for token in spec).split("\n")
    return "/".join(item for item in items if "=" in item)


def _named(tokens: Sequence[_Token], at: int, effect: Effect) -> Written:
    name = _name(tokens, at)
    return Written(name, address_in(name), effect)


def _name(tokens: Sequence[_Token], at: int) -> tuple[str, ...]:
    """Read a name of several parts: ``a.b`` or delta.`s3a://…`."""
    words = [token.word for token in tokens[at : at + 3]]
    if words == ["IF", "NOT", "EXISTS"]:
        at += 3
    elif words[:2] == ["IF", "EXISTS"]:
        at += 2
    parts: list[str] = []
    while at < len(tokens) and tokens[at].kind in {"word", "quoted"}:
        parts.append(tokens[at].value)
        if at + 1 >= len(tokens) or tokens[at + 1].text != ".":
            break
        at += 2
    return tuple(parts)


def _location(tokens: Sequence[_Token], at: int) -> str | None:
    """Find ``LOCATION '…'``, ``OPTIONS (path '…')`` or a name that is an address itself."""
    rest = [token for token in tokens[at:] if token.text != "="]
    for key, value in pairwise(rest):
        if key.value.upper() in {"LOCATION", "PATH"} and value.is_string:
            return value.value
    return address_in(_name(tokens, at))
