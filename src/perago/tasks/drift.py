"""How a registered TaskDef differs from the one that the code defines. Pure.

Only what we define is compared: Conductor adds times, owners and defaults of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_CONTRACT = ("inputKeys", "outputKeys")
_SCHEMAS = ("inputSchema", "outputSchema")
# What Conductor shows for a limit that nobody set. Leaving a limit out means "no limit", so one
# that is registered and not in the code is a difference too.
_UNSET: dict[str, Any] = {
    "concurrentExecLimit": 0,
    "rateLimitPerFrequency": 0,
    "rateLimitFrequencyInSeconds": 1,
}
# JSON Schema's words for people: changing one changes nothing that a workflow relies on.
_REMARKS = {"$comment", "title", "description", "examples", "deprecated"}
# Below these, keys are names that somebody chose, not words of JSON Schema.
_NAMESPACES = {"properties", "patternProperties", "$defs", "dependentSchemas", "dependentRequired"}


class Kind(StrEnum):
    """What a difference means for a workflow that uses the task."""

    CONTRACT = "contract"
    TUNING = "tuning"


class Absent:
    """Stands for a value that is not there, where ``None`` is a value."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class Difference:
    """One value, as it is registered and as the code defines it."""

    path: str
    registered: Any
    defined: Any
    kind: Kind


def compare_taskdefs(defined: dict[str, Any], registered: dict[str, Any]) -> list[Difference]:
    """Every difference, in the order of the definition; empty when nothing would change."""
    return list(_differences(defined, registered))


def breaks_contract(differences: Sequence[Difference]) -> bool:
    """Whether workflows written for one of the two may fail with the other."""
    return any(difference.kind is Kind.CONTRACT for difference in differences)


def updated_taskdef(defined: dict[str, Any], registered: dict[str, Any]) -> dict[str, Any]:
    """What to register: our fields, with those that only Conductor or an operator set kept."""
    kept = {key: value for key, value in registered.items() if key not in _UNSET}
    return {**kept, **defined}


def _differences(defined: dict[str, Any], registered: dict[str, Any]) -> Iterator[Difference]:
    for key in [*defined, *(key for key in _UNSET if key not in defined)]:
        ours = defined.get(key, _UNSET.get(key, ABSENT))
        theirs = registered.get(key, ABSENT)
        if key in _UNSET and theirs in (ABSENT, None):
            theirs = _UNSET[key]
        if key in _SCHEMAS and isinstance(theirs, dict):
            yield from _schema_differences(key, ours, theirs)
        elif not _same(ours, theirs):
            contract = key in _CONTRACT or key in _SCHEMAS
            yield Difference(key, theirs, ours, Kind.CONTRACT if contract else Kind.TUNING)


def _schema_differences(
    key: str, ours: dict[str, Any], theirs: dict[str, Any]
) -> Iterator[Difference]:
    for name, value in ours.items():
        registered = theirs.get(name, ABSENT)
        if name == "data":
            yield from _walk(key, registered, value, names=False, remark=False)
        elif not _same(value, registered):
            yield Difference(f"{key}({name})", registered, value, Kind.TUNING)


def _walk(path: str, theirs: Any, ours: Any, *, names: bool, remark: bool) -> Iterator[Difference]:
    """Differences of two JSON documents; ``names`` tells whether this level's keys are names."""
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        if not _same(ours, theirs):
            yield Difference(path, theirs, ours, Kind.TUNING if remark else Kind.CONTRACT)
        return
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        yield from _walk(
            f"{path}.{key}",
            theirs.get(key, ABSENT),
            ours.get(key, ABSENT),
            names=not names and key in _NAMESPACES,
            remark=remark or (not names and key in _REMARKS),
        )


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, and 1.0 is 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
