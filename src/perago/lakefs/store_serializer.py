"""Carry a store to other processes: its connection is a file that only this user can read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import SecretStr, TypeAdapter

from perago.connections import LakeFSConnection
from perago.lakefs.objects import LakeFSObjects
from perago.transfer.inventory import ObjectStore

_CONNECTION = TypeAdapter(LakeFSConnection)


@dataclass(frozen=True, slots=True)
class LakeFSStoreSerializer:
    """Writes a connection to a file, for processes that see the same folder as the same user.

    A file with mode 0600, because Spark may show or log what a job consists of: its plan and its
    functions.
    """

    connection: LakeFSConnection

    def pack(self, file: Path) -> None:
        """Write the file; raises ``FileExistsError`` if it exists."""
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as text:
            json.dump(asdict(self.connection), text, default=_plain)

    @property
    def open_store(self) -> Callable[[Path], ObjectStore]:
        return open_store


def open_store(file: Path) -> ObjectStore:
    """Open the store that a file describes; each process has one per connection.

    The file of certificates that the connection names may be missing on this machine: the store
    uses their text, which the connection carries.
    """
    return _store(_CONNECTION.validate_json(file.read_bytes()))


def _plain(value: object) -> str:
    """Return a field that JSON cannot express as text."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot be written to a file: {type(value).__name__}")


@lru_cache(maxsize=4)
def _store(connection: LakeFSConnection) -> LakeFSObjects:
    # Kept open: Spark reuses a Python worker for many tasks, and ends it when it is idle.
    return LakeFSObjects(connection)
