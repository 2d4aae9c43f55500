"""How a tree is divided into units that are gone through one by one: a listing, or a folder. Pure.

Nobody knows how much a folder holds before it is listed, so there are to be more units than tasks
can be busy with at a time; whoever gets small ones takes more of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

# What dividing may cost, in entries looked at: a hundred calls to LakeFS.
_MOST_ENTRIES = 100_000
# A look costs a call even if it finds less than LakeFS tells in one.
_ENTRIES_PER_CALL = 1000

# A look at a folder: the paths directly in it, those of folders with a slash at the end.
Level = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Subtree:
    """A folder with everything below it, or only with what is directly in it."""

    # The folder's path with a slash at the end; that of the whole tree is empty.
    start: str = ""
    is_deep: bool = True
    # The closest file where this folder or one above it would have to be.
    above: str | None = None


WHOLE = Subtree()


def split(level: Level, wanted: int, most: int = _MOST_ENTRIES) -> list[Subtree]:
    """Divide a tree, level by level, until there are enough units or nothing more to divide.

    A folder without folders stays one unit, and so does one with very many entries: no look takes
    more than half of what is left to look at.
    """
    done: list[Subtree] = []
    waiting = deque([WHOLE])
    while waiting and len(done) + len(waiting) < wanted and most > 0:
        unit = waiting.popleft()
        share = max(1, most // 2)
        looked = list(islice(level(unit.start), share + 1))
        most -= max(len(looked), _ENTRIES_PER_CALL)
        inner = _inner(unit, looked) if len(looked) <= share else []
        if inner:
            done.append(Subtree(unit.start, is_deep=False, above=unit.above))
            waiting += inner
        else:
            done.append(unit)
    return [*done, *waiting]


def _inner(unit: Subtree, looked: list[str]) -> list[Subtree]:
    """A file ``a`` stands beside the folder ``a/``, so it is known here and nowhere below."""
    files = {path for path in looked if not path.endswith("/")}
    folders = (path for path in looked if path.endswith("/"))
    return [
        Subtree(path, above=path[:-1] if path[:-1] in files else unit.above) for path in folders
    ]
