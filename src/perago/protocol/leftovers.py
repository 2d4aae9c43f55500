"""Which keys of a Spark task's staging branch are its result, and which must not be there.

Spark's committers work in folders next to the data and S3A marks folders with empty objects. Both
stay behind when a job is interrupted, and some of them always do.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perago.names import ACTIONS_FOLDER, listing_prefix
from perago.protocol.ports import Change

_DELTA_LOG = "_delta_log"
# A job's id as Spark and Hadoop write it: a UUID, or the job id of MapReduce.
_JOB_ID = r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|job_\d+_\d+|\d+)"
# Hadoop's file committers; S3A's magic committer; Spark's dynamic partition overwrite.
# The log of a streaming file sink, and the files of a checkpoint by which one is known.
_SINK_LOG = "_spark_metadata"
_CHECKPOINT = re.compile(r"(.*/)?(?:(metadata)|(offsets|commits)/\d+)")
_STREAM = "names the staging branch, so readers would find nothing; write with workspace.write"
_WORKING_FOLDER = re.compile(rf"_temporary|__magic_job-{_JOB_ID}|\.spark-staging-{_JOB_ID}")


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
        return any(_WORKING_FOLDER.fullmatch(folder) for folder in folders)

    def refusal(self, change: Change) -> str | None:
        """Why a change must not be published, or None."""
        if change.key.startswith(ACTIONS_FOLDER):
            return "a task must not write LakeFS actions"
        if not self._contains(change.key):
            return f"outside the workspace's prefix {self.prefix!r}"
        if self.is_unfinished(change):
            return "Spark was still writing"
        if change.kind != "removed" and _SINK_LOG in change.key.split("/")[:-1]:
            return f"the log of a streaming sink {_STREAM}"
        return None

    def refusals(self, changes: Iterable[Change]) -> Iterator[tuple[Change, str]]:
        """Yield what must not be published, and why; a checkpoint as one of its files."""
        checkpoints: defaultdict[str, dict[str, Change]] = defaultdict(dict)
        for change in changes:
            if why := self.refusal(change):
                yield change, why
            elif change.kind != "removed" and (found := _CHECKPOINT.fullmatch(change.key)):
                folder, metadata, numbered = found.groups()
                checkpoints[folder or ""][metadata or numbered] = change
        for files in checkpoints.values():
            # One of them alone may be an author's file of that name.
            if "offsets" in files and len(files) > 1:
                yield files["offsets"], f"the checkpoint of a streaming query {_STREAM}"

    @property
    def _start(self) -> str:
        return listing_prefix(self.prefix)

    def _contains(self, key: str) -> bool:
        return key.startswith(self._start)


def _in_delta_log(key: str) -> bool:
    """A table's log is the table: whatever looks like a leftover in it is Delta's business."""
    return _DELTA_LOG in key.split("/")
