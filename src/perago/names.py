"""Names and limits of LakeFS and Conductor that have a meaning to Perago, each defined once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# LakeFS reads a repository's actions from here. It is never part of a projection.
ACTIONS_FOLDER = "_lakefs_actions/"
# Begins the name of every staging branch.
STAGING_PREFIX = "perago-staging-"
# Begins the name of the tag that keeps a replaced commit.
REPLACED_PREFIX = "perago-replaced-"
# Begins the name of the tag that keeps what a withdrawn execution had committed.
WITHDRAWN_PREFIX = "perago-withdrawn-"
# What the id of a commit matches, all of it.
COMMIT_ID = r"[0-9a-f]{64}"
# LakeFS answers a listing and a log with at most so many entries.
ENTRIES_PER_PAGE = 1000
# Of a log that is one page the last entry only tells that there are older ones.
MOST_COMMITS_SHOWN = ENTRIES_PER_PAGE - 1
# LakeFS deletes at most so many objects in one request.
DELETES_PER_REQUEST = 1000
# Conductor's statuses of a task that is not over.
OPEN_STATUSES = frozenset({"SCHEDULED", "IN_PROGRESS"})
# Of a workflow that is not over.
LIVE_STATUSES = frozenset({"RUNNING", "PAUSED"})


def listing_prefix(prefix: str) -> str:
    """Return the prefix of keys to list: with a slash, ``audio`` excludes ``audio-archive/``."""
    return f"{prefix}/" if prefix else ""


def split_deletes(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Divide keys into as many as one request deletes."""
    size = DELETES_PER_REQUEST
    return (keys[start : start + size] for start in range(0, len(keys), size))
