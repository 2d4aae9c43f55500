"""Divide a tree, a listing or a folder, into subtrees that are processed separately. Pure.

The size of a folder is unknown until it is listed. So a tree is divided into more subtrees than
there are tasks, and each task processes several.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from perago.names import ENTRIES_PER_PAGE

# What dividing may cost, in entries read: a hundred requests to LakeFS.
_MAX_ENTRIES = 100_000

# Lists one folder: the paths directly in it, those of folders with a slash at the end.
ListLevel = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Subtree:
    """A folder with everything below it, or only with what is directly in it."""

    # The folder's path with a slash at the end; empty for the whole tree.
    start: str = ""
    is_deep: bool = True
    # The nearest file whose path is that of this folder or of one above it.
    above: str | None = None


WHOLE = Subtree()


def split(level: ListLevel, wanted: int, most: int = _MAX_ENTRIES) -> list[Subtree]:
    """Divide a tree level by level, until there are ``wanted`` subtrees or none can be divided.

    At most about ``most`` entries are read. A folder without folders stays one subtree, and so
    does one with very many entries: one folder takes at most half of the entries that are left.
    """
    done: list[Subtree] = []
    waiting = deque([WHOLE])
    while waiting and len(done) + len(waiting) < wanted and most > 0:
        subtree = waiting.popleft()
        share = max(1, most // 2)
        entries = list(islice(level(subtree.start), share + 1))
        # Listing a folder costs a request even if it holds fewer entries than a page of LakeFS.
        most -= max(len(entries), ENTRIES_PER_PAGE)
        inner = _inner(subtree, entries) if len(entries) <= share else []
        if inner:
            done.append(Subtree(subtree.start, is_deep=False, above=subtree.above))
            waiting += inner
        else:
            done.append(subtree)
    return [*done, *waiting]


def _inner(subtree: Subtree, entries: list[str]) -> list[Subtree]:
    """Return the subtrees of the folders among the entries of a folder.

    Whether a file ``a`` exists beside a folder ``a/`` is known on this level and on none below.
    """
    files = {path for path in entries if not path.endswith("/")}
    folders = (path for path in entries if path.endswith("/"))
    return [
        Subtree(path, above=path[:-1] if path[:-1] in files else subtree.above) for path in folders
    ]
