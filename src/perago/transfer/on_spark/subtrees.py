"""List and scan in tasks of a Spark job: each processes some subtrees and writes tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from perago.transfer.inventory import Source, projected
from perago.transfer.on_spark.functions import PartitionResult, TransferContext
from perago.transfer.on_spark.jobs import table_of
from perago.transfer.on_spark.tables import (
    FETCHED,
    LISTED,
    LOCAL,
    PROBLEMS,
    SUBTREES,
    PartWriter,
    Row,
    TransferTable,
    dump_metadata,
    values_of,
    written_parts,
)
from perago.transfer.partition import Bounds, TransferSize
from perago.transfer.paths import SortedNames, local_path_problem, publish_problems, room_in
from perago.transfer.scan import scanned
from perago.transfer.subtrees import Subtree

# More would not be faster: a task costs a fifth of a second, and all send requests to one LakeFS.
MAX_TASKS = 16

PathAndProblem = tuple[str, str]


def write_subtrees(
    subtrees: Sequence[Subtree], folder: Path, tasks: int = MAX_TASKS
) -> TransferTable:
    """Write a table of subtrees, with one part for each task.

    The parts take subtrees in turn, because neighbours are often of similar size.
    """
    tasks = min(tasks, len(subtrees))
    for number in range(tasks):
        with PartWriter(folder, number, SUBTREES) as part:
            for subtree in subtrees[number::tasks]:
                # JSON, because folders on disk need not have names in valid UTF-8.
                part.add(json.dumps(astuple(subtree)), number)
    return TransferTable(folder, SUBTREES, dict.fromkeys(range(tasks), ()))


def list_subtrees(
    context: TransferContext,
    source: Source,
    tables: Path,
    bounds: Bounds,
    number: int,
    rows: list[Row],
) -> PartitionResult:
    """List subtrees, check every key, and write tables of the files, markers and problems."""
    store, room = context.store(), room_in(context.data)
    with (
        PartWriter(tables / "listed", number, LISTED, bounds) as listed,
        PartWriter(tables / "markers", number, FETCHED) as markers,
        PartWriter(tables / "bad", number, PROBLEMS) as bad,
    ):
        for subtree in _subtrees_of(rows):
            names = SortedNames(room, subtree.above)
            for entry in projected(source.listing(store, subtree), source.prefix):
                path, item = entry.path, entry.item
                if why := names.problem(entry):
                    _add_problem(bad, item.key, why)
                elif entry.is_marker:
                    markers.add(f"{path}/", item.key, *[None] * (len(FETCHED) - 2))
                    # No column has the group: it counts the markers.
                    markers.group(item.size)
                else:
                    kept = item.content_type, dump_metadata(item.metadata), item.checksum
                    listed.add(path, item.key, *kept, item.size, listed.group(item.size))
    return _result(listed, markers, bad)


def scan_subtrees(
    data: Path, prefix: str, changes: Path, bounds: Bounds, number: int, rows: list[Row]
) -> PartitionResult:
    """Scan subtrees of the data folder, check every name, and write tables of what is there."""
    with (
        PartWriter(changes / "local", number, LOCAL, bounds) as local,
        PartWriter(changes / "special", number, PROBLEMS) as special,
        PartWriter(changes / "bad", number, PROBLEMS) as bad,
    ):
        for entry in (entry for subtree in _subtrees_of(rows) for entry in scanned(data, subtree)):
            path, record = entry.path, entry.record
            name = path if record is not None else f"{path}/"
            if entry.special is not None:
                _add_problem(special, path, entry.special)
            elif problems := list(publish_problems(name, prefix)):
                for why in problems:
                    _add_problem(bad, name, why)
            elif record is not None:
                local.add(name, *values_of(record), local.group(record.size))
            elif local_path_problem(path) is None:
                # A folder with such a name is no problem: no marker can have that name.
                local.add(name, *[None] * (len(LOCAL) - 1))
    return _result(local, special, bad)


def problems_in(folder: Path, results: Mapping[int, PartitionResult]) -> Iterator[PathAndProblem]:
    """Read the problems that tasks wrote to a table."""
    for row in table_of(results, folder, PROBLEMS).rows():
        name, why = json.loads(row["problem"])
        yield name, why


def _subtrees_of(rows: list[Row]) -> Iterator[Subtree]:
    return (Subtree(*json.loads(row["subtree"])) for row in rows)


def _add_problem(part: PartWriter, name: str, why: str) -> None:
    part.add(json.dumps([name, why]))


def _result(found: PartWriter, *others: PartWriter) -> PartitionResult:
    total = sum(found.group_sizes, TransferSize())
    return PartitionResult(total, parts=written_parts(found, *others))
