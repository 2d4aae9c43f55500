"""Listing and scanning in tasks: each goes through some units of the tree and writes tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple
from pathlib import Path

from perago.transfer.inventory import Source, projected
from perago.transfer.on_spark.functions import PartitionResult, TaskContext
from perago.transfer.on_spark.jobs import Answer, table_of
from perago.transfer.on_spark.tables import (
    FETCHED,
    LISTED,
    LOCAL,
    PROBLEMS,
    UNITS,
    PartWriter,
    Row,
    Table,
    dump_metadata,
    written,
)
from perago.transfer.partition import Bounds, TransferSize
from perago.transfer.paths import SortedNames, path_problem, publish_problems, room_in
from perago.transfer.scan import scanned
from perago.transfer.subtrees import Subtree

# More would not be faster: a task costs a fifth of a second, and they all ask one LakeFS.
_MOST_TASKS = 16

Problem = tuple[str, str]


def write_subtrees(units: Sequence[Subtree], folder: Path) -> Table:
    """A part for each task. Dealt out in turn: neighbours are often of a size."""
    tasks = min(_MOST_TASKS, len(units))
    for number in range(tasks):
        with PartWriter(folder, number, UNITS) as part:
            for unit in units[number::tasks]:
                # JSON, because folders on disk need not have names in valid UTF-8.
                part.add(json.dumps(astuple(unit)), number)
    return Table(folder, UNITS, dict.fromkeys(range(tasks), ()))


def list_subtrees(
    site: TaskContext, source: Source, tables: Path, bounds: Bounds, number: int, rows: list[Row]
) -> PartitionResult:
    """List units and write down what is there, with a look at every key of it."""
    store, room = site.store(), room_in(site.data)
    with (
        PartWriter(tables / "listed", number, LISTED, bounds) as listed,
        PartWriter(tables / "markers", number, FETCHED) as markers,
        PartWriter(tables / "bad", number, PROBLEMS) as bad,
    ):
        for unit in _subtrees_of(rows):
            names = SortedNames(room, unit.above)
            for entry in projected(source.listing(store, unit), source.prefix):
                path, item = entry.path, entry.item
                if why := names.problem(entry):
                    _note(bad, item.key, why)
                elif entry.is_marker:
                    markers.add(f"{path}/", item.key, *[None] * (len(FETCHED) - 2))
                else:
                    kept = item.content_type, dump_metadata(item.metadata)
                    listed.add(path, item.key, *kept, item.size, listed.group(item.size))
    return _told(listed, markers, bad)


def scan_subtrees(
    data: Path, prefix: str, changes: Path, bounds: Bounds, number: int, rows: list[Row]
) -> PartitionResult:
    """Scan units of the data folder and write down what is there, with a look at every name."""
    with (
        PartWriter(changes / "local", number, LOCAL, bounds) as local,
        PartWriter(changes / "special", number, PROBLEMS) as special,
        PartWriter(changes / "bad", number, PROBLEMS) as bad,
    ):
        for found in (found for unit in _subtrees_of(rows) for found in scanned(data, unit)):
            path, record = found.path, found.record
            name = path if record is not None else f"{path}/"
            if found.special is not None:
                _note(special, path, found.special)
            elif problems := list(publish_problems(name, prefix)):
                for why in problems:
                    _note(bad, name, why)
            elif record is not None:
                local.add(name, *asdict(record).values(), local.group(record.size))
            elif path_problem(path) is None:
                # A folder with another name is no problem, and no marker stands for it.
                local.add(name, *[None] * (len(LOCAL) - 1))
    return _told(local, special, bad)


def problems_in(folder: Path, answers: list[Answer]) -> Iterator[Problem]:
    """What tasks noted in a table of problems."""
    for row in table_of(answers, folder, PROBLEMS).rows():
        name, why = json.loads(row["problem"])
        yield name, why


def _subtrees_of(rows: list[Row]) -> Iterator[Subtree]:
    return (Subtree(*json.loads(row["unit"])) for row in rows)


def _note(part: PartWriter, name: str, why: str) -> None:
    part.add(json.dumps([name, why]))


def _told(found: PartWriter, *others: PartWriter) -> PartitionResult:
    load = sum(found.loads, TransferSize())
    return PartitionResult(load.objects, load.size, parts=written(found, *others))
