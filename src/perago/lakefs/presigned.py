"""Objects past the gateway: their bytes go straight between this process and the object store.

LakeFS offers that where its store can presign: it gives out addresses at which one object can be
read or written for some minutes. It offers it also where a worker cannot reach the store. So, as
long as the store has not answered well once, any failure of it means that it is of no use from
here: what was to be moved goes through the gateway, and so does everything for a while.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock

from pydantic import TypeAdapter

from perago.connections import LakeFSConnection, plain_http_warning
from perago.errors import BackendError, BackendUnavailableError
from perago.http_client import RequestError
from perago.lakefs.addresses import PresignedAddress, ReadAddresses, RenewedAddress
from perago.lakefs.api import ConfigMessage, LakeFSApi, LakeFSMessage, parsed
from perago.lakefs.batch import BatchRequest
from perago.lakefs.errors import from_damaged_part, from_store_answer, from_store_request
from perago.lakefs.pieces import PIECE_PATIENCE, pieces_at_once, read_ahead
from perago.lakefs.shared_call import SharedCall
from perago.lakefs.staging import Target, UploadLocation, UploadRequests
from perago.lakefs.store_client import (
    SplitAddress,
    StoreAnswer,
    StoreClient,
    host_of,
    request_head,
)
from perago.retry import retrying
from perago.transfer.inventory import DIGEST, PIECE, RemoteObject, piece_size

_log = logging.getLogger(__name__)

# Smaller objects are written through the gateway: one request to LakeFS instead of two besides the
# one to the store.
SMALLEST_WRITTEN = 1 << 20
# LakeFS says where objects go, also where its own address is encrypted.
PLAIN_HTTP_HINT = (
    "Have LakeFS give out https:// addresses (blockstore.s3.pre_signed_endpoint), or set "
    "PERAGO_TRANSFER=gateway."
)
# For how long a store that could not be used is not tried again.
REST_SECONDS = 600.0
# With these a store refuses an address: expired, signed by a clock that is wrong, or not allowed.
_REFUSALS = {400, 401, 403}
_WRITTEN = frozenset({200, 201})
_md5 = partial(hashlib.md5, usedforsecurity=False)


class _Storage(LakeFSMessage):
    blockstore_type: str
    pre_sign_support: bool
    pre_sign_multipart_upload: bool | None = None


class _Config(ConfigMessage):
    # Missing where LakeFS has several stores, of which each may offer something else.
    storage_config: _Storage | None = None


_CONFIG = TypeAdapter(_Config)


class StoreUnusableError(Exception):
    """The store cannot be used from here. Nothing was written."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """What LakeFS offers."""

    addresses: bool = False
    # For the parts of a large upload.
    parts: bool = False
    # What a store needs besides the content.
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _SentPart:
    """A part that was sent: the store's tag of what it has, and the MD5 of what was sent."""

    etag: str
    md5: str


class PresignedClient:
    """Reads and writes objects at presigned addresses, where that is possible. Thread-safe."""

    def __init__(self, connection: LakeFSConnection, api: LakeFSApi) -> None:
        self._connection = connection
        self._api = api
        authorities = connection.authorities
        self._store = StoreClient(
            connect_timeout=connection.connect_timeout,
            read_timeout=connection.read_timeout,
            pem=authorities.pem if authorities else None,
        )
        self._retrier = partial(retrying, connection.retry_seconds)
        self._addresses = ReadAddresses(api, self._retrier)
        self._staging = UploadRequests(api, self._retrier)
        self._lock = Lock()
        self._asking = SharedCall[_Offer]()
        self._offer = _Offer() if connection.transfer == "gateway" else None
        # The hosts that did. Objects that LakeFS imported may be in several buckets.
        self._have_answered: set[str] = set()
        self._rests_until = 0.0

    def close(self) -> None:
        """Close the connections to the store."""
        self._store.close()

    def check(self, repository: str, branch: str) -> str:
        """Return where the store of a repository is; raises ``BackendError`` if none answers."""
        what, target = "answer as a store", Target(repository, branch, "perago-check", "", {})
        url = self._staging.locate(target).presigned_url
        try:
            answer = self._store.get(url, 0, seconds=self._seconds(0))
        except RequestError as error:
            raise from_store_request(what, host_of(url), error) from None
        # The address is one for writing, and nothing is there: a store refuses.
        refusal = from_store_answer(what, host_of(url), answer)
        if isinstance(refusal, BackendUnavailableError):
            raise refusal
        return host_of(url)

    def can_read(self) -> bool:
        """Return whether objects can be read; asks LakeFS once."""
        return self._current_offer().addresses

    def can_write(self, size: int) -> bool:
        """Return whether an object of this size is to be written; asks LakeFS once."""
        if size < SMALLEST_WRITTEN:
            return False
        offer = self._current_offer()
        return offer.parts if size > PIECE else offer.addresses

    def _current_offer(self) -> _Offer:
        if time.monotonic() < self._rests_until:
            return _Offer()
        if self._offer is None:
            self._offer = self._asking.make(self._ask_for_offer)
        return self._offer

    def _ask_for_offer(self) -> _Offer:
        what = "read its storage configuration"
        config = self._api.get(what, "/config", parsed(_CONFIG), retrier=self._retrier())
        storage = config.storage_config
        if storage is None:
            return _Offer()
        is_azure = storage.blockstore_type == "azure"
        return _Offer(
            storage.pre_sign_support,
            storage.pre_sign_support and bool(storage.pre_sign_multipart_upload),
            (("x-ms-blob-type", "BlockBlob"),) if is_azure else (),
        )

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        """Read an object, a large one in pieces and from any of them on.

        Raises ``StoreUnusableError`` where the rest cannot be read.
        """
        what, ask = f"read object {key!r}", partial(self._addresses.ask, repository, ref, key)
        if size <= PIECE:
            found = RenewedAddress(ask, self._addresses.find(repository, ref, key))
            yield self._read_piece(what, found, size, None, size)
        else:
            read = partial(self._read_piece, what, RenewedAddress(ask), size)
            yield from read_ahead(read, size, start)

    def save(
        self, repository: str, ref: str, key: str, size: int, descriptor: int
    ) -> Iterator[int]:
        """Write an object to a file, and yield the lengths of its pieces, in order.

        Raises as ``read`` does, and ``FileError`` if the file cannot be written.
        """
        what, seconds = f"read object {key!r}", self._seconds(PIECE)
        address = RenewedAddress(partial(self._addresses.ask, repository, ref, key))

        def save(start: int, length: int) -> int:
            def get(url: str) -> StoreAnswer:
                return self._store.save(
                    url, length, descriptor, start=start, total=size, seconds=seconds
                )

            self._exchange(what, address, get, frozenset({206}))
            return length

        return read_ahead(save, size)

    def _read_piece(
        self, what: str, address: RenewedAddress, total: int, start: int | None, length: int
    ) -> memoryview:
        seconds = self._seconds(PIECE)

        def get(url: str) -> StoreAnswer:
            return self._store.get(url, length, start=start, total=total, seconds=seconds)

        # A store that does not know ranges would send the whole object.
        expected = frozenset({200 if start is None else 206})
        return self._exchange(what, address, get, expected).content

    def read_many(
        self, repository: str, ref: str, objects: Iterable[RemoteObject], at_once: int
    ) -> Iterator[tuple[RemoteObject, memoryview]]:
        """Read small objects, in any order; those that cannot be read are left out."""
        host = ""  # of the first request: a batch takes no other's answers

        def requests() -> Iterator[BatchRequest[RemoteObject]]:
            nonlocal host
            for remote in objects:
                try:
                    url = self._addresses.find(repository, ref, remote.key).url
                    split = SplitAddress.of(url)
                except (BackendError, ValueError):
                    return  # it has been retried; to read the object by itself tells what it is
                _warn_if_plain_http(url)
                host = host or str(split.endpoint)
                head = request_head("GET", split, {})
                yield BatchRequest(remote, split.endpoint, head, 200, remote.size)

        answers = self._store.exchange_all(
            requests(), at_once=at_once, seconds=self._seconds(PIECE)
        )
        for remote, content in answers:
            self._have_answered.add(host)
            yield remote, content

    def write(self, target: Target, source: Path) -> str:
        """Write an object; return its digest if it is known for sure, or nothing.

        Raises ``StoreUnusableError`` if nothing was written.
        """
        size = source.stat().st_size
        return (self._write_parts if size > PIECE else self._write_whole)(target, source, size)

    def _write_whole(self, target: Target, source: Path, size: int) -> str:
        with source.open("rb") as file:
            content = file.read(size)
        digest = _md5(content)
        locations: list[UploadLocation] = []

        def ask() -> PresignedAddress:
            locations.append(self._staging.locate(target))
            return PresignedAddress.undated(locations[-1].presigned_url)

        self._put(target.what, RenewedAddress(ask), content, digest.digest())
        self._staging.link(target, locations[-1], digest.hexdigest(), len(content))
        return digest.hexdigest()

    def _write_parts(self, target: Target, source: Path, size: int) -> str:
        piece = piece_size(size)
        upload = self._staging.begin(target, count=-(-size // piece))
        addresses = [PresignedAddress.undated(url) for url in upload.presigned_urls]
        with source.open("rb") as file:

            def send(index: int) -> _SentPart:
                ask = partial(self._staging.locate_part, target, upload, index + 1)
                content = os.pread(file.fileno(), piece, index * piece)
                digest = _md5(content)
                address = RenewedAddress(ask, addresses[index])
                answer = self._put(target.what, address, content, digest.digest())
                return _SentPart(answer.etag, digest.hexdigest())

            try:
                with ThreadPoolExecutor(pieces_at_once(piece), "perago-part") as pool:
                    sent = list(pool.map(send, range(len(addresses))))
                for index in _damaged(sent):
                    sent[index] = send(index)
                if _damaged(sent):
                    raise from_damaged_part(target.what, host_of(addresses[0].url))
                self._staging.complete(target, upload, [part.etag for part in sent], size)
            except Exception:
                self._staging.abort(target, upload)
                raise
            return _digest_of_parts(sent)

    def _put(
        self, what: str, address: RenewedAddress, content: bytes, digest: bytes
    ) -> StoreAnswer:
        """Write content with its MD5, which the store compares with what arrives."""
        headers = dict(self._offer.headers if self._offer else ())
        headers["Content-MD5"] = base64.b64encode(digest).decode()

        def put(url: str) -> StoreAnswer:
            seconds = self._seconds(len(content))
            answer = self._store.put(url, content, headers, seconds=seconds)
            if answer.status in _WRITTEN and not answer.etag:
                raise RequestError("the answer has no ETag", sent=True)
            return answer

        return self._exchange(what, address, put, _WRITTEN)

    def _exchange(
        self,
        what: str,
        address: RenewedAddress,
        send: Callable[[str], StoreAnswer],
        expected: frozenset[int],
    ) -> StoreAnswer:
        """Send a request with retries; an address that is refused is asked for anew, once."""

        def once() -> StoreAnswer:
            url = address.url()
            answer = self._sent(what, url, send)
            if answer.status in _REFUSALS:
                url = address.url(refused=url)
                answer = self._sent(what, url, send)
            host = host_of(url)
            if answer.status not in expected:
                raise self._judged(host, from_store_answer(what, host, answer))
            self._have_answered.add(host)
            return answer

        try:
            return once()
        except BackendUnavailableError:
            # Only now: for a small object a retrier costs as much as the rest of it.
            return self._retrier()(once)

    def _sent(self, what: str, url: str, send: Callable[[str], StoreAnswer]) -> StoreAnswer:
        _warn_if_plain_http(url)
        try:
            return send(url)
        except RequestError as error:
            host = host_of(url)
            raise self._judged(host, from_store_request(what, host, error)) from None

    def _judged(self, host: str, error: BackendError) -> Exception:
        """Return the error; if the store has never answered, that it is of no use."""
        if host in self._have_answered:
            return error
        with self._lock:
            is_told = time.monotonic() < self._rests_until
            self._rests_until = time.monotonic() + REST_SECONDS
        if not is_told:
            _log.warning(
                "%s; objects go through LakeFS's S3 gateway for %d minutes: make the object store "
                "reachable from this machine, or set PERAGO_TRANSFER=gateway",
                error,
                REST_SECONDS // 60,
            )
        return StoreUnusableError()

    def _seconds(self, size: int) -> float:
        """Return the time for a request that moves so many bytes, on a slow connection too."""
        pieces = max(1.0, size / PIECE)
        return self._connection.connect_timeout + (
            PIECE_PATIENCE * self._connection.read_timeout * pieces
        )


def _warn_if_plain_http(url: str) -> None:
    if url.startswith("http://"):
        _warn_of_plain_http(host_of(url))


@lru_cache(maxsize=64)
def _warn_of_plain_http(host: str) -> None:
    """Warn once in a process if objects go to another machine without encryption."""
    if warning := plain_http_warning(host):
        _log.warning("the object store %s: %s. %s", host, warning, PLAIN_HTTP_HINT)


def _damaged(sent: list[_SentPart]) -> list[int]:
    """Return the parts of which the store has another content than was sent, by its tags.

    Some stores have tags that look like an MD5 and are none, for example where they encrypt with
    keys of their own. Then not one of them is.
    """
    if all(part.etag != part.md5 for part in sent):
        return []
    return [
        index
        for index, part in enumerate(sent)
        if part.etag != part.md5 and DIGEST.fullmatch(part.etag)
    ]


def _digest_of_parts(sent: list[_SentPart]) -> str:
    """Return the digest of an object, if the store's tags of its parts are MD5s, or nothing."""
    if any(part.etag != part.md5 for part in sent):
        return ""
    return _md5(b"".join(bytes.fromhex(part.md5) for part in sent)).hexdigest()
