"""A store for other processes: the connection travels in a file that only this user can read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.lakefs.objects import LakeFSObjects
from perago.transfer.inventory import ObjectStore


@dataclass(frozen=True, slots=True)
class LakeFSStoreSerializer:
    """Packs a connection for processes that see the same folder as the same user.

    A file, because what a job is made of (its plan, its functions) may be shown or logged by the
    system that runs it, and a file with mode 0600 is read by nobody else.
    """

    connection: LakeFSConnection

    def pack(self, file: Path) -> None:
        """Write the file, which must not be there yet."""
        values = {
            field.name: getattr(self.connection, field.name) for field in fields(self.connection)
        }
        values["secret_access_key"] = self.connection.secret_access_key.get_secret_value()
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as text:
            json.dump(values, text)

    @property
    def open_store(self) -> Callable[[Path], ObjectStore]:
        return open_store


def open_store(file: Path) -> ObjectStore:
    """The store that a file describes; one per process and connection."""
    values = json.loads(file.read_text(encoding="utf-8"))
    values["secret_access_key"] = SecretStr(values["secret_access_key"])
    return _store(LakeFSConnection(**values))


@lru_cache(maxsize=4)
def _store(connection: LakeFSConnection) -> LakeFSObjects:
    # Kept open: Spark uses a Python worker again and again, and ends it when it is idle.
    return LakeFSObjects(connection)
