"""Name the types of files as Spark's ``simpleString()`` names those of a DataFrame."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

_DATE = re.compile(r"\d{4}-\d\d?-\d\d?")


def merged_type(kinds: Sequence[Any], inferred: bool) -> str:
    """Name the type of a column; if files differ, name each type that it has."""
    import pyarrow as pa

    if inferred and len(kinds) > 1:
        try:
            schemas = [pa.schema([("it", kind)]) for kind in kinds]
            kinds = [pa.unify_schemas(schemas, promote_options="permissive").field("it").type]
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            pass
    names = dict.fromkeys(_type_name(kind, inferred) for kind in kinds)
    return " or ".join(names)


def _type_name(kind: Any, inferred: bool) -> str:
    """Name an Arrow type as Spark's ``simpleString()`` does."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _type_name(kind.value_type, inferred)
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_map(kind):
        return f"map<{_type_name(kind.key_type, inferred)},{_type_name(kind.item_type, inferred)}>"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return f"array<{_type_name(kind.value_type, inferred)}>"
    if types.is_struct(kind):
        fields = [(kind.field(i).name, kind.field(i).type) for i in range(kind.num_fields)]
        # Spark sorts the fields that it infers.
        ordered = sorted(fields, key=lambda it: str(it[0])) if inferred else fields
        return f"struct<{','.join(f'{name}:{_type_name(it, inferred)}' for name, it in ordered)}>"
    if inferred and (types.is_timestamp(kind) or types.is_null(kind)):
        # JSON has no times: pyarrow saw text that looks like one. Spark takes text, also for null.
        return "string"
    if types.is_timestamp(kind):
        return "timestamp"
    return _NAMES.get(str(kind), str(kind))


_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    # The next larger type that has a sign, as Spark reads them.
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "binary_view": "binary",
    "date32[day]": "date",
    "date64[ms]": "date",
    "null": "void",
}


def partition_type(values: Iterable[str | None]) -> str:
    """Infer the type of a partition column, as Spark does it."""
    kinds = {_kind_of_text(value) for value in values if value is not None}
    if kinds == {"int", "bigint"}:
        return "bigint"
    if kinds and kinds <= {"int", "bigint", "double"}:
        return "double" if "double" in kinds else kinds.pop()
    return kinds.pop() if len(kinds) == 1 else "string"


def _kind_of_text(value: str) -> str:
    if re.fullmatch(r"[+-]?\d+", value, re.ASCII):
        bits = int(value).bit_length() if len(value) < 20 else 64
        return "int" if bits < 32 else "bigint" if bits < 64 else "string"
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?", value, re.ASCII):
        return "double"
    return "date" if _DATE.fullmatch(value) else "string"
