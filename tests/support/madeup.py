"""A store with a listing that is made up as it is asked for, also by Spark's tasks.

Days of ten thousand objects each. Nothing else is there: only planning is measured with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perago.transfer.inventory import RemoteObject

_PER_DAY = 10_000
_ROOT = "events/"


def path_of(number: int) -> str:
    return f"{_ROOT}day={number // _PER_DAY:04}/part-{number:08}.csv"


@dataclass(frozen=True)
class MadeUp:
    """What planning asks of an ``ObjectStore``."""

    count: int

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        first, last = 0, self.count
        if prefix.startswith(f"{_ROOT}day="):
            first = int(prefix.partition("=")[2].strip("/")) * _PER_DAY
            last = min(self.count, first + _PER_DAY)
        for number in range(first, last):
            yield RemoteObject(path_of(number), 0, "text/csv")

    def level(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject | str]:
        if prefix == "":
            yield _ROOT
        elif prefix == _ROOT:
            yield from (f"{_ROOT}day={n:04}/" for n in range(-(-self.count // _PER_DAY)))
        else:
            yield from self.list(repository, ref, prefix)


@dataclass(frozen=True)
class MadeUpShipment:
    """As of a real store: the file says what to open."""

    store: MadeUp

    def pack(self, file: Path) -> None:
        file.write_text(str(self.store.count))

    @property
    def open_store(self) -> Callable[[Path], Any]:
        return open_store


def open_store(file: Path) -> Any:
    return MadeUp(int(file.read_text()))
