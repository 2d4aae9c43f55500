"""The data plane: objects through the S3 gateway with obstore, listings through the LakeFS API.

Written by hand, with urllib3: listings (the SDK builds a model per object) and uploads of objects
with user metadata or with keys that the S3 client refuses (the SDK holds whole files in memory,
and the gateway renames metadata keys).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

import obstore
import urllib3
from obstore.store import S3Store
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from perago.errors import BackendRefusedError, BackendUnavailableError
from perago.lakefs.connection import LakeFSConnection
from perago.lakefs.errors import from_status, translated
from perago.transfer.inventory import DEFAULT_CONTENT_TYPE, RemoteObject

_PAGE = 1000
_PIECE = 8 << 20
_PIECES_AHEAD = 3
_CONNECTIONS = 32

_repeatable = retry(
    retry=retry_if_exception_type(BackendUnavailableError),
    stop=stop_after_attempt(4),
    wait=wait_random_exponential(multiplier=0.2, max=3),
    reraise=True,
)


class LakeFSObjects:
    """Implements the transfer's ``ObjectStore`` port. Safe to use from many threads."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection
        self._stores: dict[str, S3Store] = {}
        self._lock = Lock()
        secret = connection.secret_access_key.get_secret_value()
        self._http = urllib3.PoolManager(
            maxsize=_CONNECTIONS,
            retries=False,
            timeout=urllib3.Timeout(connection.connect_timeout, connection.read_timeout),
            headers=urllib3.make_headers(basic_auth=f"{connection.access_key_id}:{secret}"),
        )

    def close(self) -> None:
        """Give the connections back."""
        self._http.clear()
        self._stores.clear()

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        after = ""
        while True:
            page = self._list_page(repository, ref, prefix, after)
            for item in page["results"]:
                if item["path_type"] == "object":
                    yield RemoteObject(
                        key=item["path"],
                        size=item.get("size_bytes", 0),
                        checksum=item["checksum"],
                        content_type=item.get("content_type") or DEFAULT_CONTENT_TYPE,
                        metadata=item.get("metadata") or {},
                    )
            if not page["pagination"]["has_more"]:
                return
            after = page["pagination"]["next_offset"]

    @_repeatable
    def _list_page(self, repository: str, ref: str, prefix: str, after: str) -> dict[str, Any]:
        fields = {"prefix": prefix, "after": after, "amount": str(_PAGE), "user_metadata": "true"}
        url = f"{self._repository_url(repository)}/refs/{quote(ref, safe='')}/objects/ls"
        what = f"list {prefix!r} at {ref} of {repository!r}"
        with translated(what):
            answer = self._http.request("GET", url, fields=fields)
        if answer.status != 200:
            raise from_status(what, answer.status, answer.data)
        page: dict[str, Any] = json.loads(answer.data)
        return page

    def read(self, repository: str, ref: str, key: str, size: int) -> Iterator[memoryview]:
        if not _gateway_takes(key):
            yield from self._read_through_api(repository, ref, key)
            return
        store, path = self._store(repository), f"{ref}/{key}"
        with translated(f"read object {key!r}"):
            if size <= _PIECE:
                yield memoryview(obstore.get(store, path).bytes())
            else:
                yield from _read_pieces(store, path, size)

    @_repeatable
    def _get(self, url: str, fields: dict[str, str], what: str) -> bytes:
        with translated(what):
            answer = self._http.request("GET", url, fields=fields)
        if answer.status != 200:
            raise from_status(what, answer.status, answer.data)
        return answer.data

    def _read_through_api(self, repository: str, ref: str, key: str) -> Iterator[memoryview]:
        url = f"{self._repository_url(repository)}/refs/{quote(ref, safe='')}/objects"
        yield memoryview(self._get(url, {"path": key}, f"read object {key!r}"))

    def write(
        self,
        repository: str,
        branch: str,
        key: str,
        source: Path,
        *,
        content_type: str,
        metadata: dict[str, str],
    ) -> None:
        if metadata or not _gateway_takes(key):
            self._write_through_api(repository, branch, key, source, content_type, metadata)
            return
        with translated(f"write object {key!r}"):
            obstore.put(
                self._store(repository),
                f"{branch}/{key}",
                source,
                attributes={"Content-Type": content_type},
                chunk_size=_PIECE,
                max_concurrency=_PIECES_AHEAD,
            )

    @_repeatable
    def _write_through_api(
        self,
        repository: str,
        branch: str,
        key: str,
        source: Path,
        content_type: str,
        metadata: dict[str, str],
    ) -> None:
        what = f"write object {key!r}"
        url = f"{self._repository_url(repository)}/branches/{quote(branch, safe='')}/objects"
        headers = {
            **self._http.headers,
            "Content-Type": content_type,
            "Content-Length": str(source.stat().st_size),
            **{f"x-lakefs-meta-{name}": value for name, value in metadata.items()},
        }
        with source.open("rb") as body, translated(what):
            answer = self._http.request(
                "POST", f"{url}?path={quote(key, safe='')}", body=body, headers=headers
            )
        if answer.status not in {200, 201}:
            raise from_status(what, answer.status, answer.data)

    @_repeatable
    def delete(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        what = f"delete {len(keys)} objects on {branch!r}"
        url = f"{self._repository_url(repository)}/branches/{quote(branch, safe='')}/objects/delete"
        with translated(what):
            answer = self._http.request("POST", url, json={"paths": list(keys)})
        if answer.status != 200:
            raise from_status(what, answer.status, answer.data)
        # The call answers 200 and lists what it did not delete.
        errors = [e for e in json.loads(answer.data).get("errors") or [] if e["status_code"] != 404]
        if errors:
            raise BackendRefusedError(f"LakeFS could not {what}: {errors[0]['message']}")

    def _repository_url(self, repository: str) -> str:
        return f"{self._connection.api}/repositories/{quote(repository, safe='')}"

    def _store(self, repository: str) -> S3Store:
        with self._lock:
            if repository not in self._stores:
                self._stores[repository] = _open_store(self._connection, repository)
            return self._stores[repository]


def _open_store(connection: LakeFSConnection, repository: str) -> S3Store:
    return S3Store(
        repository,
        endpoint=connection.gateway,
        access_key_id=connection.access_key_id,
        secret_access_key=connection.secret_access_key.get_secret_value(),
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={
            "allow_http": connection.gateway.startswith("http://"),
            "connect_timeout": timedelta(seconds=connection.connect_timeout),
            # Covers a whole request; no request moves more than one piece.
            "timeout": timedelta(seconds=2 * connection.read_timeout),
        },
        retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=60)},
    )


def _read_pieces(store: S3Store, path: str, size: int) -> Iterator[memoryview]:
    """Ranges in order, a few of them ahead, so that hashing and writing do not stop the line."""
    starts = range(0, size, _PIECE)
    with ThreadPoolExecutor(_PIECES_AHEAD, thread_name_prefix="perago-range") as ahead:

        def ask(start: int) -> Future[Any]:
            length = min(_PIECE, size - start)
            return ahead.submit(obstore.get_range, store, path, start=start, length=length)

        pending = [ask(start) for start in starts[:_PIECES_AHEAD]]
        for start in starts[_PIECES_AHEAD:]:
            yield memoryview(pending.pop(0).result())
            pending.append(ask(start))
        for piece in pending:
            yield memoryview(piece.result())


def _gateway_takes(key: str) -> bool:
    """obstore refuses control characters in keys."""
    return key.isprintable() or not any(ord(char) < 32 or ord(char) == 127 for char in key)
