"""Presigned addresses of objects, asked of LakeFS: of one object, or of many in one request.

An address is a secret: any client that has it can read or write one object until it expires.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from tenacity import Retrying

from perago.lakefs.api import OBJECTS, STAT, LakeFSApi, ObjectMessage, parsed
from perago.lakefs.refs import ref_path
from perago.lakefs.shared_call import SharedCall
from perago.names import COMMIT_ID, ENTRIES_PER_PAGE

_COMMIT = re.compile(COMMIT_ID)
# How many addresses are asked for at once, up to a page.
_LEAST = 16
# Many times as many as were used of those before.
_GROWTH = 4
_PAGES_KEPT = 3
# A request that is sent until then is taken: stores look at the time when it arrives.
_MARGIN_SECONDS = 10.0
# Where LakeFS does not say when an address expires. Its default is 15 minutes.
_UNSTATED_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class PresignedAddress:
    """Where one object can be read or written, and until when by ``time.monotonic``."""

    url: str = field(repr=False)
    good_until: float

    @classmethod
    def undated(cls, url: str) -> PresignedAddress:
        """An address of which LakeFS does not say when it expires."""
        return cls(url, time.monotonic() + _UNSTATED_SECONDS)

    @property
    def is_stale(self) -> bool:
        return time.monotonic() >= self.good_until


class RenewedAddress:
    """The address of one object, asked for anew when it is stale or was refused. Thread-safe."""

    def __init__(
        self, ask: Callable[[], PresignedAddress], first: PresignedAddress | None = None
    ) -> None:
        self._ask = ask
        self._address = first
        self._asking = SharedCall[PresignedAddress]()

    def url(self, refused: str = "") -> str:
        """Return an address other than the one that was refused."""
        address = self._address
        if address is None or address.is_stale or address.url == refused:
            address = self._address = self._asking.make(self._ask)
        return address.url


class ReadAddresses:
    """Gives addresses for reading. Thread-safe.

    The objects of a commit are mostly read in the order of their keys. So LakeFS is asked for the
    addresses of the following ones too, before they are needed, and for the more of them the more
    of the last were used: for thousands of small objects one request in a thousand is for
    addresses, and a few objects here and there cost LakeFS few signatures that are not used.
    """

    def __init__(self, api: LakeFSApi, retrier: Callable[[], Retrying]) -> None:
        self._api = api
        self._retrier = retrier
        self._asking = SharedCall[None]()
        self._lock = Lock()
        self._forget("", "")

    def _forget(self, repository: str, ref: str) -> None:
        self._commit = (repository, ref)
        self._pages: deque[dict[str, PresignedAddress]] = deque(maxlen=_PAGES_KEPT)
        self._amount = self._used = _LEAST
        # The key after which to ask for more; empty where there is no more.
        self._next = ""

    def ask(self, repository: str, ref: str, key: str) -> PresignedAddress:
        """Ask for the address of one object."""

        def read(body: bytes) -> PresignedAddress:
            address = self._address_of(parsed(STAT)(body), self._time_of_lakefs())
            if address is None:
                raise ValueError("the answer has no presigned address")
            return address

        return self._api.get(
            f"read the address of object {key!r}",
            f"{ref_path(repository, ref)}/objects/stat",
            read,
            {"path": key, "presign": "true", "user_metadata": "false"},
            retrier=self._retrier(),
        )

    def find(self, repository: str, ref: str, key: str) -> PresignedAddress:
        """Return the address of one of many objects."""
        # What a branch has under a key may be another object a moment later.
        if not _COMMIT.fullmatch(ref):
            return self.ask(repository, ref, key)
        found = self._take(repository, ref, key)
        if found is None:
            self._asking.make(lambda: self._ask_from(repository, ref, key))
            found = self._take(repository, ref, key)
        elif self._running_out():
            self._asking.make_unless_running(lambda: self._ask_for_next(repository, ref))
        return found or self.ask(repository, ref, key)

    def _take(self, repository: str, ref: str, key: str) -> PresignedAddress | None:
        with self._lock:
            if self._commit != (repository, ref):
                self._forget(repository, ref)
            for page in self._pages:
                if (found := page.pop(key, None)) is not None:
                    self._used += 1
                    return None if found.is_stale else found
            return None

    def _running_out(self) -> str:
        """Return the key after which to ask for more while there still are some, or nothing."""
        with self._lock:
            few = bool(self._pages) and len(self._pages[-1]) * _GROWTH < self._amount
            return self._next if few else ""

    def _ask_from(self, repository: str, ref: str, key: str) -> None:
        with self._lock:
            # Another thread may have asked just before.
            is_there = any(key in page for page in self._pages)
        if not is_there:
            self._ask_for_more(repository, ref, just_before(key))

    def _ask_for_next(self, repository: str, ref: str) -> None:
        if after := self._running_out():
            self._ask_for_more(repository, ref, after)

    def _ask_for_more(self, repository: str, ref: str, after: str) -> None:
        with self._lock:
            amount = min(ENTRIES_PER_PAGE, max(_LEAST, _GROWTH * self._used))
        page = self._api.get(
            f"read the addresses of objects at {ref} of {repository!r}",
            f"{ref_path(repository, ref)}/objects/ls",
            parsed(OBJECTS),
            {"after": after, "amount": amount, "presign": "true", "user_metadata": "false"},
            retrier=self._retrier(),
        )
        now = self._time_of_lakefs()
        found = {item.path: self._address_of(item, now) for item in page.results}
        with self._lock:
            if self._commit == (repository, ref):
                self._pages.append({key: item for key, item in found.items() if item is not None})
                self._amount, self._used = amount, 0
                more = page.pagination.has_more and page.pagination.next_offset > after
                self._next = page.pagination.next_offset if more else ""

    def _address_of(self, item: ObjectMessage, now: float) -> PresignedAddress | None:
        """Take the address out of an entry; None where LakeFS does not let this user read it."""
        url = item.physical_address or ""
        if not url.startswith(("http://", "https://")):
            return None
        expiry = item.physical_address_expiry or 0
        if expiry <= 0:
            return PresignedAddress.undated(url)
        left = expiry - now - _MARGIN_SECONDS
        return PresignedAddress(url, time.monotonic() + left)

    def _time_of_lakefs(self) -> float:
        return time.time() + (self._api.clock_difference or 0.0)


def just_before(key: str) -> str:
    """Return a text that sorts before a key, with no likely key between them.

    LakeFS lists what comes after a text.
    """
    code = ord(key[-1])
    if code == 0:
        return key[:-1]
    # No text has the codes from D800 to DFFF.
    before = 0xD7FF if code == 0xE000 else code - 1
    return f"{key[:-1]}{chr(before)}\U0010ffff"
