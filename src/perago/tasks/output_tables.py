"""The files of the tables that a Spark task writes: which Spark reads, and which it replaces.

To replace partitions, Spark's dynamic mode writes elsewhere and renames, which LakeFS can only do
by copying. Here the new files are appended, and then the older files of each folder that got one
are deleted: that takes neither a copy nor a second evaluation of the frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_FOLDER = re.compile(r"file:(?://)?(/[^/].*)")


class OutputTables(Protocol):
    """What a Spark workspace needs to know of the files in its output. Paths are relative to it."""

    def has_files(self, path: str) -> bool:
        """Whether there is any data file below ``path``."""
        ...

    def loose_files(self, path: str) -> Sequence[str]:
        """Return the paths of the data files directly in ``path``, outside of partitions."""
        ...

    def replacing_partitions(self, path: str) -> AbstractContextManager[None]:
        """Afterwards, delete the older files of each partition that got a file within.

        With the first partition go the loose files: the file of an empty table is one.
        """
        ...


@dataclass(frozen=True, slots=True)
class FolderTables:
    """Implements ``OutputTables`` on a folder of this machine, for an author's unit tests."""

    root: Path

    def has_files(self, path: str) -> bool:
        return bool(self._files(path))

    def loose_files(self, path: str) -> list[str]:
        table = self.root / path
        loose = (file for file in self._files(path) if file.parent == table)
        return [file.relative_to(self.root).as_posix() for file in loose]

    @contextmanager
    def replacing_partitions(self, path: str) -> Iterator[None]:
        before = self._files(path)
        yield
        table = self.root / path

        def partition(file: Path) -> str:
            return partition_key(file.parent.relative_to(table).as_posix())

        touched = set(map(partition, self._files(path) - before))
        if touched:
            touched.add(partition_key("."))
        for file in before:
            if partition(file) in touched:
                file.unlink()

    def _files(self, path: str) -> set[Path]:
        table = self.root / path
        found = (file for file in table.rglob("*") if file.is_file())
        return {file for file in found if is_data(file.relative_to(table).as_posix())}


def folder_tables(output_uri: str | None) -> FolderTables | None:
    """Return the tables of an output that is a folder here; Hadoop decodes nothing in its path."""
    found = _FOLDER.fullmatch(output_uri or "")
    return FolderTables(Path(found.group(1))) if found else None


def is_data(name: str) -> bool:
    """Whether Spark reads the file: no part of its path is hidden. A folder marker is no file."""
    return not name.endswith("/") and not any(map(_is_hidden, name.split("/")))


def partition_key(folder: str) -> str:
    """Write the folder of a partition so that those that Spark takes for one are equal.

    The names of columns have no case: ``Day=1`` and ``day=1`` are the same partition.
    """
    parts = (part.partition("=") for part in folder.strip("/").split("/"))
    return "/".join(f"{name.lower()}={value}" if sign else name for name, sign, value in parts)


def _is_hidden(part: str) -> bool:
    """Spark's rule; the folder of a partition may begin with an underscore."""
    return not part or part.startswith(".") or (part.startswith("_") and "=" not in part)
