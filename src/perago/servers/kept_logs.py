"""Logs of servers that outlive their server: a file for each start, bounded in size and number."""

from __future__ import annotations

import itertools
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

_LARGEST = 16 << 20
# Of one log: the file itself, and so many earlier parts.
_PARTS = 3
_LOGS = 20
_numbers = itertools.count(1)


class KeptLogs:
    """A folder of logs, which several processes may share."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    def begin(self) -> Path:
        """Return the path of a new log, after removing the oldest ones; raises ``OSError``."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        logs = sorted(self._folder.glob(f"{self._name}-*.log"), key=_age, reverse=True)
        for old in logs[_LOGS - 1 :]:
            for part in (old, *_parts(old)):
                part.unlink(missing_ok=True)
        began = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        return self._folder / f"{self._name}-{began}-{os.getpid()}-{next(_numbers)}.log"


def rotate(log: Path, largest: int = _LARGEST) -> None:
    """Begin a log anew that has become too large, and keep its latest parts.

    The server has the file open for appending: it is copied and emptied, not renamed. What is
    written between the two is lost. Never raises: a full disk must not end the server.
    """
    try:
        if log.stat().st_size <= largest:
            return
        parts = _parts(log)
        for older, newer in itertools.pairwise(reversed(parts)):
            if newer.exists():
                newer.replace(older)
        shutil.copyfile(log, parts[0])
        os.truncate(log, 0)
    except OSError:
        return


def _parts(log: Path) -> list[Path]:
    """The earlier parts of a log, the latest first."""
    return [log.with_name(f"{log.name}.{number}") for number in range(1, _PARTS + 1)]


def _age(log: Path) -> float:
    try:
        return log.stat().st_mtime
    except OSError:
        return 0.0
