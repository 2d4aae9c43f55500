"""The data plane of LakeFS: objects through the S3 gateway, all else through the LakeFS API.

The requests to the API are made with urllib3 and not with the SDK: listings (the SDK builds a
model per object), objects whose keys the S3 client refuses (the SDK holds whole files in memory),
deletes, and user metadata (the gateway renames its keys, and the upload call changes their case).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import obstore
import urllib3
from obstore.store import S3Store

from perago.connections import LakeFSConnection
from perago.lakefs.errors import from_status, from_unreadable, translated
from perago.protocol.ports import Change
from perago.protocol.workspace import StagingBranch
from perago.retry import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, retrying
from perago.transfer.inventory import DEFAULT_CONTENT_TYPE, RemoteObject

if TYPE_CHECKING:
    from obstore.store import ClientConfig

Parsed = TypeVar("Parsed")

_PAGE = 1000
_CONNECTIONS = 32
PIECE = 8 << 20
_PIECES_AHEAD = 3


class LakeFSObjects:
    """Implements the ports ``ObjectStore`` and ``Objects``. Thread-safe."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection
        self._gateway = GatewayClient(connection)
        secret = connection.secret_access_key.get_secret_value()
        self._headers = urllib3.make_headers(basic_auth=f"{connection.access_key_id}:{secret}")
        self._http = urllib3.PoolManager(
            maxsize=_CONNECTIONS,
            retries=False,
            timeout=urllib3.Timeout(connection.connect_timeout, connection.read_timeout),
            ca_cert_data=connection.authorities.pem if connection.authorities else None,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.clear()

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        return map(_as_object, self._listed(repository, ref, prefix, ""))

    def level(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject | str]:
        for item in self._listed(repository, ref, prefix, "/"):
            yield _as_object(item) if item["path_type"] == "object" else str(item["path"])

    def _listed(
        self, repository: str, ref: str, prefix: str, delimiter: str
    ) -> Iterator[dict[str, Any]]:
        url = f"{self._ref_url(repository, ref)}/objects/ls"
        what = f"list {prefix!r} at {ref} of {repository!r}"
        fields = {"prefix": prefix, "delimiter": delimiter, "user_metadata": "true"}
        return self._pages(what, url, fields)

    def uncommitted(self, staging: StagingBranch) -> Iterator[Change]:
        what = f"compare branch {staging.branch!r} of {staging.repository!r} with its HEAD"
        url = f"{self._branch_url(staging.repository, staging.branch)}/diff"
        return map(_as_change, self._pages(what, url, {}))

    def changes(self, repository: str, base: str, commit: str) -> Iterator[Change]:
        what = f"compare {commit} with {base} in {repository!r}"
        url = f"{self._ref_url(repository, base)}/diff/{quote(commit, safe='')}"
        return map(_as_change, self._pages(what, url, {"type": "two_dot"}))

    def _pages(self, what: str, url: str, fields: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Request all pages of a list; yield every entry."""
        after = ""
        while True:
            page = self._request(
                what, "GET", url, {**fields, "after": after, "amount": _PAGE}, parse=_json
            )
            yield from page["results"]
            if not page["pagination"]["has_more"]:
                return
            after = page["pagination"]["next_offset"]

    def read(self, repository: str, ref: str, key: str, size: int) -> Iterator[memoryview]:
        if size == 0:
            return iter(())
        if _gateway_takes(key):
            return self._gateway.read(repository, ref, key, size)
        return self._read_through_api(repository, ref, key, size)

    def _read_through_api(
        self, repository: str, ref: str, key: str, size: int
    ) -> Iterator[memoryview]:
        url = f"{self._ref_url(repository, ref)}/objects"
        what = f"read object {key!r}"
        for start in range(0, size, PIECE):
            end = min(start + PIECE, size) - 1
            headers = {"Range": f"bytes={start}-{end}"}
            parse = partial(_exactly, length=end + 1 - start)
            yield self._request(what, "GET", url, {"path": key}, headers=headers, parse=parse)

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
        if _gateway_takes(key):
            self._gateway.write(repository, branch, key, source, content_type)
        else:
            self._write_through_api(repository, branch, key, source, content_type)
        if metadata:
            self._set_metadata(repository, branch, key, metadata)

    def _write_through_api(
        self, repository: str, branch: str, key: str, source: Path, content_type: str
    ) -> None:
        headers = {"Content-Type": content_type, "Content-Length": str(source.stat().st_size)}
        url = f"{self._branch_url(repository, branch)}/objects"
        what = f"write object {key!r}"
        self._request(what, "POST", url, {"path": key}, source, headers=headers, parse=bytes)

    def _set_metadata(
        self, repository: str, branch: str, key: str, metadata: dict[str, str]
    ) -> None:
        url = f"{self._branch_url(repository, branch)}/objects/stat/user_metadata"
        what = f"set the user metadata of object {key!r}"
        body = json.dumps({"set": metadata}).encode()
        self._request(what, "PUT", url, {"path": key}, body, parse=bytes)

    def delete(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        what = f"delete {len(keys)} objects on {branch!r}"
        url = f"{self._branch_url(repository, branch)}/objects/delete"
        body = json.dumps({"paths": list(keys)}).encode()
        answer = self._request(what, "POST", url, {}, body, parse=_json)
        # LakeFS answers 200 and lists the keys it failed to delete; a missing key is no error.
        if errors := answer.get("errors"):
            raise from_status(what, errors[0]["status_code"], errors[0]["message"].encode())

    def _request(
        self,
        what: str,
        method: str,
        url: str,
        fields: dict[str, Any],
        body: bytes | Path | None = None,
        *,
        headers: dict[str, str] | None = None,
        parse: Callable[[bytes], Parsed],
    ) -> Parsed:
        """Send one request, with retries: all of them read or are idempotent.

        Parsing is retried too: urllib3 does not notice an answer that is cut off in its headers.
        """
        target = f"{url}?{urlencode(fields)}" if fields else url
        headers = {"Content-Type": "application/json", **self._headers, **(headers or {})}

        def send() -> Parsed:
            with ExitStack() as held:
                # Opened for each try: a failed one has moved the file's position.
                content = held.enter_context(body.open("rb")) if isinstance(body, Path) else body
                held.enter_context(translated(what))
                answer = self._http.request(method, target, body=content, headers=headers)
            if not 200 <= answer.status < 300:
                raise from_status(what, answer.status, answer.data)
            try:
                return parse(answer.data)
            except ValueError as error:
                raise from_unreadable(what, error) from None

        return retrying(self._connection.retry_seconds)(send)

    def _repository_url(self, repository: str) -> str:
        return f"{self._connection.api}/repositories/{quote(repository, safe='')}"

    def _ref_url(self, repository: str, ref: str) -> str:
        return f"{self._repository_url(repository)}/refs/{quote(ref, safe='')}"

    def _branch_url(self, repository: str, branch: str) -> str:
        return f"{self._repository_url(repository)}/branches/{quote(branch, safe='')}"


def _as_object(item: dict[str, Any]) -> RemoteObject:
    return RemoteObject(
        key=item["path"],
        size=item.get("size_bytes", 0),
        content_type=item.get("content_type") or DEFAULT_CONTENT_TYPE,
        metadata=item.get("metadata") or {},
    )


def _as_change(item: dict[str, Any]) -> Change:
    return Change(item["path"], item["type"], item.get("size_bytes", 0))


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError("the answer is not a JSON object")  # noqa: TRY004  the answer's fault
    return value


def _exactly(body: bytes, length: int) -> memoryview:
    if len(body) != length:
        raise ValueError(f"the answer has {len(body)} bytes instead of {length}")
    return memoryview(body)


def _gateway_takes(key: str) -> bool:
    """Return whether obstore can use a key: no control character, no slash at the end."""
    return not key.endswith("/") and not any(ord(char) < 32 or ord(char) == 127 for char in key)


class GatewayClient:
    """Reads and writes objects through the S3 gateway. Thread-safe."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection
        self._stores: dict[str, S3Store] = {}
        self._lock = Lock()

    def read(self, repository: str, ref: str, key: str, size: int) -> Iterator[memoryview]:
        """Read an object in ranges, some ahead, so that hashing does not delay the next request."""
        store, path = self._store(repository), f"{ref}/{key}"
        with translated(f"read object {key!r}"):
            if size <= PIECE:
                yield memoryview(obstore.get(store, path).bytes())
            else:
                yield from _read_pieces(store, path, size)

    def write(
        self, repository: str, branch: str, key: str, source: Path, content_type: str
    ) -> None:
        """Upload one file, in parts if it is large."""
        with translated(f"write object {key!r}"):
            obstore.put(
                self._store(repository),
                f"{branch}/{key}",
                source,
                attributes={"Content-Type": content_type},
                chunk_size=PIECE,
                max_concurrency=_PIECES_AHEAD,
            )

    def _store(self, repository: str) -> S3Store:
        with self._lock:
            if repository not in self._stores:
                self._stores[repository] = _open_store(self._connection, repository)
            return self._stores[repository]


def _read_pieces(store: S3Store, path: str, size: int) -> Iterator[memoryview]:
    starts = range(0, size, PIECE)
    with ThreadPoolExecutor(_PIECES_AHEAD, thread_name_prefix="perago-range") as ahead:

        def request(start: int) -> Future[Any]:
            length = min(PIECE, size - start)
            return ahead.submit(obstore.get_range, store, path, start=start, length=length)

        pending = [request(start) for start in starts[:_PIECES_AHEAD]]
        for start in starts[_PIECES_AHEAD:]:
            yield memoryview(pending.pop(0).result())
            pending.append(request(start))
        for piece in pending:
            yield memoryview(piece.result())


def _open_store(connection: LakeFSConnection, repository: str) -> S3Store:
    """Open a store that ignores the AWS variables of the environment.

    obstore reads them all, and arguments take precedence. The variable of the S3 endpoint, for
    example, would send the requests to another server.
    """
    client: ClientConfig = {
        "allow_http": connection.gateway.startswith("http://"),
        "connect_timeout": timedelta(seconds=connection.connect_timeout),
        "read_timeout": timedelta(seconds=connection.read_timeout),
        # For a whole request, which moves one piece at most, also on a slow connection.
        "timeout": timedelta(seconds=4 * connection.read_timeout),
    }
    if connection.authorities is not None:
        client["root_certificate"] = connection.authorities.pem
    return S3Store(
        repository,
        endpoint=connection.gateway,
        aws_endpoint_url_s3=connection.gateway,
        credential_provider=_Credentials(connection),
        region="us-east-1",
        virtual_hosted_style_request=False,
        skip_signature=False,
        s3_express=False,
        client_options=client,
        # obstore retries by itself, also a body that was cut off and a write without an answer.
        retry_config={
            "retry_timeout": timedelta(seconds=connection.retry_seconds),
            "backoff": {
                "init_backoff": timedelta(seconds=FIRST_WAIT_SECONDS),
                "max_backoff": timedelta(seconds=LONGEST_WAIT_SECONDS),
            },
        },
    )


class _Credentials:
    """Provides obstore with the key pair for signing, and no session token."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection

    def __call__(self) -> Any:
        return {
            "access_key_id": self._connection.access_key_id,
            "secret_access_key": self._connection.secret_access_key.get_secret_value(),
            "token": None,
            "expires_at": None,
        }
