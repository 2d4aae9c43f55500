"""Compare a registered TaskDef with the one that the code defines. Pure.

Only the fields that the code defines are compared: Conductor adds times, owners and defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_CONTRACT = ("inputKeys", "outputKeys")
_SCHEMAS = ("inputSchema", "outputSchema")
# What Conductor returns for a limit that is not set. A limit that is not in the code means "no
# limit", so one that is registered and not in the code is a difference.
_UNSET: dict[str, Any] = {
    "concurrentExecLimit": 0,
    "rateLimitPerFrequency": 0,
    "rateLimitFrequencyInSeconds": 1,
}
# Keywords of JSON Schema for people: no workflow relies on their values.
_REMARKS = {"$comment", "title", "description", "examples", "deprecated"}
# Below these, keys are names that the author chose, not keywords of JSON Schema.
_NAMESPACES = {"properties", "patternProperties", "$defs", "dependentSchemas", "dependentRequired"}


class DifferenceKind(StrEnum):
    """Whether a difference can break a workflow that uses the task."""

    CONTRACT = "contract"
    TUNING = "tuning"


class Absent:
    """Marks a missing value, where ``None`` is a value."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class Difference:
    """One value, as registered and as the code defines it."""

    path: str
    registered: Any
    defined: Any
    kind: DifferenceKind


def compare_taskdefs(defined: dict[str, Any], registered: dict[str, Any]) -> list[Difference]:
    """List every difference, in the order of the definition; empty if nothing would change."""
    return list(_differences(defined, registered))


def breaks_contract(differences: Sequence[Difference]) -> bool:
    """Whether a workflow written for one of the two TaskDefs may fail with the other."""
    return any(difference.kind is DifferenceKind.CONTRACT for difference in differences)


def updated_taskdef(defined: dict[str, Any], registered: dict[str, Any]) -> dict[str, Any]:
    """Build the TaskDef to register: the defined fields, and those that others have set."""
    kept = {key: value for key, value in registered.items() if key not in _UNSET}
    return {**kept, **defined}


def _differences(defined: dict[str, Any], registered: dict[str, Any]) -> Iterator[Difference]:
    for key in [*defined, *(key for key in _UNSET if key not in defined)]:
        wanted = defined.get(key, _UNSET.get(key, ABSENT))
        found = registered.get(key, ABSENT)
        if key in _UNSET and found in (ABSENT, None):
            found = _UNSET[key]
        if key in _SCHEMAS and isinstance(found, dict):
            yield from _schema_differences(key, wanted, found)
        elif not _same(wanted, found):
            contract = key in _CONTRACT or key in _SCHEMAS
            yield Difference(
                key, found, wanted, DifferenceKind.CONTRACT if contract else DifferenceKind.TUNING
            )


def _schema_differences(
    key: str, wanted: dict[str, Any], found: dict[str, Any]
) -> Iterator[Difference]:
    for name, value in wanted.items():
        registered = found.get(name, ABSENT)
        if name == "data":
            yield from _walk(key, registered, value, names=False, remark=False)
        elif not _same(value, registered):
            yield Difference(f"{key}({name})", registered, value, DifferenceKind.TUNING)


def _walk(path: str, found: Any, wanted: Any, *, names: bool, remark: bool) -> Iterator[Difference]:
    """Compare two JSON documents; ``names`` says whether the keys of this level are names."""
    if not (isinstance(found, dict) and isinstance(wanted, dict)):
        if not _same(wanted, found):
            yield Difference(
                path, found, wanted, DifferenceKind.TUNING if remark else DifferenceKind.CONTRACT
            )
        return
    for key in [*wanted, *(key for key in found if key not in wanted)]:
        yield from _walk(
            f"{path}.{key}",
            found.get(key, ABSENT),
            wanted.get(key, ABSENT),
            names=not names and key in _NAMESPACES,
            remark=remark or (not names and key in _REMARKS),
        )


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: true is not 1, and 1.0 is 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
