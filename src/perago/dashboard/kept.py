"""Keep what does not change, within bounds, so that open pages cost the servers little."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentValues(Generic[Key, Value]):
    """The values that were kept last, by their keys."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        """Return a value, or None."""
        with self._lock:
            return self._values.get(key)

    def keep(self, key: Key, value: Value) -> Value:
        """Keep a value in place of the oldest one, and return it."""
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                del self._values[next(iter(self._values))]
        return value


class CachedValue(Generic[Value]):
    """A value that is read at most once in a number of seconds, for all requests together."""

    def __init__(self, read: Callable[[], Value], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: tuple[float, Value] | None = None

    def __call__(self) -> Value:
        with self._lock:
            if self._known is None or time.monotonic() - self._known[0] > self._seconds:
                value = self._read()
                # Counted from the end of the reading: a slow server is not asked all the time.
                self._known = time.monotonic(), value
            return self._known[1]
