"""What changed in a workspace, file by file, and which of the files Spark reads as a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perago.tasks.output_tables import is_data

# What Hadoop takes for a pattern in a path to read; escaped, it stands for itself.
_GLOB = re.compile(r"[{}\[\]*?\\]")


@dataclass(frozen=True, slots=True)
class WorkspaceChanges:
    """The files of a workspace that are new, other or gone; paths are relative to it and sorted."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    # What the workspace was compared with; None where there is nothing, so that all is added.
    since: str | None = None

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def below(self, path: str) -> WorkspaceChanges:
        """Return the changes of a file or of what is below a folder; all of them for ``""``."""

        def select(paths: Sequence[str]) -> tuple[str, ...]:
            return tuple(it for it in paths if _is_below(it, path))

        return WorkspaceChanges(
            select(self.added), select(self.changed), select(self.removed), self.since
        )


def new_data_files(changes: WorkspaceChanges, table: str) -> list[str]:
    """Return the paths of the files with new rows of a table, as Spark takes files for data."""
    found = changes.below(table)
    start = len(table) + 1 if table else 0
    # A path that is the table itself is a file that its author named.
    return sorted(it for it in (*found.added, *found.changed) if it == table or is_data(it[start:]))


def is_glob(path: str) -> bool:
    """Whether Hadoop takes a path to read for a pattern."""
    return _GLOB.search(path) is not None


def escape_glob(path: str) -> str:
    """Write a path so that Hadoop reads it literally."""
    return _GLOB.sub(r"\\\g<0>", path)


def _is_below(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(f"{folder}/")
