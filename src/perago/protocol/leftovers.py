"""Which keys of a Spark task's staging branch are its result, and which must not be there.

Spark's committers work in folders next to the data and S3A marks folders with empty objects. Both
stay behind when a job is interrupted, and some of them always do.
"""

from __future__ import annotations

from dataclasses import dataclass

from perago.protocol.names import ACTIONS_FOLDER
from perago.protocol.ports import Change

_DELTA_LOG = "_delta_log"
# Hadoop's file committers; S3A's magic committer; Spark's dynamic partition overwrite.
_WORKING_FOLDERS = ("_temporary", "__magic", ".spark-staging")


@dataclass(frozen=True, slots=True)
class Boundary:
    """The part of a repository that a task may change. ``prefix`` has no slash at its ends."""

    prefix: str

    def is_leftover(self, change: Change) -> bool:
        """Whether this execution left something behind that is no part of its result."""
        return self.is_marker(change) or self.is_unfinished(change)

    def is_marker(self, change: Change) -> bool:
        """A folder marker that was added, in the workspace or on the way to it.

        Empty folders are never published, and a folder that holds something needs no marker.
        """
        key = change.key
        if change.kind != "added" or change.size or not key.endswith("/") or _in_delta_log(key):
            return False
        return self._contains(key) or self._start.startswith(key)

    def is_unfinished(self, change: Change) -> bool:
        """Something in a committer's working folder: the job that wrote it did not finish."""
        if change.kind != "added" or not self._contains(change.key) or _in_delta_log(change.key):
            return False
        folders = change.key[len(self._start) :].split("/")[:-1]
        return any(folder.startswith(_WORKING_FOLDERS) for folder in folders)

    def refusal(self, change: Change) -> str | None:
        """Why a change must not be published, or None."""
        if change.key.startswith(ACTIONS_FOLDER):
            return "a task must not write LakeFS actions"
        if not self._contains(change.key):
            return f"outside the workspace's prefix {self.prefix!r}"
        if self.is_unfinished(change):
            return "Spark was still writing"
        return None

    @property
    def _start(self) -> str:
        return f"{self.prefix}/" if self.prefix else ""

    def _contains(self, key: str) -> bool:
        return key.startswith(self._start)


def _in_delta_log(key: str) -> bool:
    """A table's log is the table: whatever looks like a leftover in it is Delta's business."""
    return _DELTA_LOG in key.split("/")
