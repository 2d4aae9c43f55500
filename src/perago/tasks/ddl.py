"""Parse Spark's DDL for columns, ``id BIGINT, tags ARRAY<STRING>``, where there is no Spark.

Types come out as Spark's ``simpleString()`` writes them.
"""

from __future__ import annotations

import re

_PIECE = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[<>(),:])")
_OTHER_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    # Files do not keep the lengths.
    "char": "string",
    "varchar": "string",
    # A file does not always say which of the three it has.
    "timestamp_ntz": "timestamp",
    "timestamp_ltz": "timestamp",
}
_SIMPLE = frozenset(
    {
        *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"),
        *("date", "timestamp", "string", "binary", "void"),
    }
)


def parse_columns(text: str) -> dict[str, str]:
    """Return the types of columns by name; raises ``ValueError`` that says what is wrong."""
    parser = _Parser(text)
    columns = parser.columns()
    if parser.piece:
        raise ValueError(f"unexpected {parser.piece!r}")
    return columns


class _Parser:
    def __init__(self, text: str) -> None:
        self._pieces = list(_pieces(text))
        self._at = 0

    @property
    def piece(self) -> str:
        return self._pieces[self._at] if self._at < len(self._pieces) else ""

    def columns(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while True:
            name = self._name()
            self._skip(":")
            found[name] = self._type()
            self._properties()
            if not self._skip(","):
                return found

    def _name(self) -> str:
        piece = self._next()
        if piece.startswith("`"):
            return piece[1:-1].replace("``", "`")
        if not piece or not (piece[0].isalnum() or piece[0] == "_"):
            raise ValueError(f"a name is missing before {piece!r}")
        return piece

    def _type(self) -> str:
        word = self._next().lower()
        kind = _OTHER_NAMES.get(word, word)
        if kind == "array":
            return f"array<{self._inside(1)[0]}>"
        if kind == "map":
            return "map<{},{}>".format(*self._inside(2))
        if kind == "struct":
            return self._struct()
        if kind == "decimal":
            precision, scale, *_ = (
                [*self._numbers(), "0", "0"] if self.piece == "(" else ["10", "0"]
            )
            return f"decimal({precision},{scale})"
        if kind not in _SIMPLE:
            raise ValueError(f"{word!r} is not a type that files have")
        self._numbers()
        return kind

    def _inside(self, count: int) -> list[str]:
        self._expect("<")
        found = [self._type()]
        for _ in range(count - 1):
            self._expect(",")
            found.append(self._type())
        self._expect(">")
        return found

    def _struct(self) -> str:
        self._expect("<")
        fields = self.columns()
        self._expect(">")
        return f"struct<{','.join(f'{name}:{kind}' for name, kind in fields.items())}>"

    def _numbers(self) -> list[str]:
        if not self._skip("("):
            return []
        found = [self._next()]
        while self._skip(","):
            found.append(self._next())
        self._expect(")")
        if not all(number.isdecimal() for number in found):
            raise ValueError(f"({','.join(found)}) must be whole numbers")
        return found

    def _properties(self) -> None:
        if self.piece.lower() == "not":
            self._next()
            if self._next().lower() != "null":
                raise ValueError("NOT must be followed by NULL")
        if self.piece.lower() == "comment":
            self._next()
            self._next()

    def _next(self) -> str:
        piece = self.piece
        self._at += 1
        return piece

    def _skip(self, piece: str) -> bool:
        found = self.piece == piece
        self._at += found
        return found

    def _expect(self, piece: str) -> None:
        if not self._skip(piece):
            raise ValueError(f"{piece!r} is missing before {self.piece!r}")


def _pieces(text: str) -> list[str]:
    found: list[str] = []
    end = 0
    for match in _PIECE.finditer(text):
        if match.start() != end:
            break
        found.append(match.group(1))
        end = match.end()
    if rest := text[end:].strip():
        raise ValueError(f"unexpected {rest[:20]!r}")
    return found
