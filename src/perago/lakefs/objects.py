"""The data plane of LakeFS: objects through the S3 gateway, all else through the LakeFS API.

Through the API go listings, objects whose keys the S3 client refuses, deletes, and user metadata
(the gateway renames its keys, and the upload call changes their case).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import obstore
from obstore.store import S3Store
from tenacity import Retrying

from perago.connections import LakeFSConnection
from perago.errors import NotFoundError
from perago.lakefs.api import (
    CHANGES,
    DELETION,
    OBJECTS,
    STAT,
    ChangeMessage,
    LakeFSApi,
    ObjectMessage,
    at_path,
    nothing,
    parsed,
)
from perago.lakefs.errors import from_message, translated
from perago.protocol.ports import Change
from perago.protocol.workspace import StagingBranch
from perago.retry import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, retrying
from perago.transfer.inventory import DEFAULT_CONTENT_TYPE, PIECE, RemoteObject, piece_size

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig

_PIECES_AHEAD = 3
_REFUSED = re.compile(r"[\x00-\x1f\x7f]|/\Z")
# A piece may take this many times the read timeout.
_PIECE_PATIENCE = 4


class LakeFSObjects:
    """Implements the ports ``ObjectStore`` and ``Objects``. Thread-safe."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection
        self._gateway = GatewayClient(connection)
        self._api = LakeFSApi(connection)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def check_gateway(self) -> None:
        """Raise ``BackendError`` if the S3 gateway is unavailable or refuses the credentials."""
        self._gateway.check()

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        return map(_as_object, self._listed(repository, ref, prefix, ""))

    def level(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject | str]:
        for item in self._listed(repository, ref, prefix, "/"):
            yield _as_object(item) if item.path_type == "object" else item.path

    def _listed(
        self, repository: str, ref: str, prefix: str, delimiter: str
    ) -> Iterator[ObjectMessage]:
        path = f"{_ref(repository, ref)}/objects/ls"
        what = f"list {prefix!r} at {ref} of {repository!r}"
        fields = {"prefix": prefix, "delimiter": delimiter, "user_metadata": "true"}
        return self._api.pages(what, path, OBJECTS, fields, retrier=self._retrier)

    def uncommitted(self, staging: StagingBranch) -> Iterator[Change]:
        what = f"compare branch {staging.branch!r} of {staging.repository!r} with its HEAD"
        path = f"{_branch(staging.repository, staging.branch)}/diff"
        return map(_as_change, self._api.pages(what, path, CHANGES, retrier=self._retrier))

    def changes(
        self, repository: str, base: str, commit: str, prefix: str = ""
    ) -> Iterator[Change]:
        what = f"compare {commit} with {base} in {repository!r}"
        path = f"{_ref(repository, base)}/diff{at_path(commit)}"
        query = {"type": "two_dot", "prefix": prefix}
        return map(_as_change, self._api.pages(what, path, CHANGES, query, retrier=self._retrier))

    def read(self, repository: str, ref: str, key: str, size: int) -> Iterator[memoryview]:
        if size == 0:
            return iter(())
        if _gateway_takes(key):
            return self._gateway.read(repository, ref, key, size)
        return self._read_through_api(repository, ref, key, size)

    def _read_through_api(
        self, repository: str, ref: str, key: str, size: int
    ) -> Iterator[memoryview]:
        for start in range(0, size, PIECE):
            end = min(start + PIECE, size) - 1
            yield self._api.get(
                f"read object {key!r}",
                f"{_ref(repository, ref)}/objects",
                partial(_exactly, length=end + 1 - start),
                {"path": key},
                headers={"Range": f"bytes={start}-{end}"},
                status=206,
                seconds=_PIECE_PATIENCE * self._connection.read_timeout,
                retrier=self._retrier(),
            )

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
        self._api.change(
            f"write object {key!r}",
            "POST",
            f"{_branch(repository, branch)}/objects",
            parsed(STAT),
            status=201,
            query={"path": key},
            body=source,
            headers={"Content-Type": content_type},
            retrier=self._retrier(),
        )

    def _set_metadata(
        self, repository: str, branch: str, key: str, metadata: dict[str, str]
    ) -> None:
        self._api.change(
            f"set the user metadata of object {key!r}",
            "PUT",
            f"{_branch(repository, branch)}/objects/stat/user_metadata",
            nothing,
            # The specification of the API has 201, and servers answer 204.
            status=(201, 204),
            query={"path": key},
            body={"set": metadata},
            retrier=self._retrier(),
        )

    def delete(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        what = f"delete {len(keys)} objects on {branch!r}"
        answer = self._api.change(
            what,
            "POST",
            f"{_branch(repository, branch)}/objects/delete",
            parsed(DELETION),
            status=200,
            body={"paths": list(keys)},
            retrier=self._retrier(),
        )
        # LakeFS answers 200 and lists the keys it failed to delete; a missing key is no error.
        if answer.errors:
            first = answer.errors[0]
            raise from_message(what, first.status_code, first.message, changes=True)

    def _retrier(self) -> Retrying:
        """Build a retrier: all requests for objects read or are idempotent."""
        return retrying(self._connection.retry_seconds)


def _ref(repository: str, ref: str) -> str:
    return at_path("repositories", repository, "refs", ref)


def _branch(repository: str, branch: str) -> str:
    return at_path("repositories", repository, "branches", branch)


def _as_object(item: ObjectMessage) -> RemoteObject:
    checksum = (item.checksum or "").strip('"')
    return RemoteObject(
        key=item.path,
        size=item.size_bytes or 0,
        content_type=item.content_type or DEFAULT_CONTENT_TYPE,
        metadata=item.metadata or {},
        checksum=checksum,
        # Of a small object the checksum says enough, and there may be a million of them.
        address=item.physical_address or "" if (item.size_bytes or 0) > PIECE else "",
    )


def _as_change(item: ChangeMessage) -> Change:
    return Change(item.path, item.type, item.size_bytes or 0)


def _exactly(body: bytes, length: int) -> memoryview:
    if len(body) != length:
        raise ValueError(f"the answer has {len(body)} bytes instead of {length}")
    return memoryview(body)


def _gateway_takes(key: str) -> bool:
    """Return whether obstore can use a key: no control character, no slash at the end."""
    return _REFUSED.search(key) is None


def pieces_at_once(piece: int) -> int:
    """Return how many parts are in memory together: fewer when they are large."""
    return max(1, _PIECES_AHEAD * PIECE // piece)


class GatewayClient:
    """Reads and writes objects through the S3 gateway. Thread-safe."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection
        self._stores: dict[tuple[str, int], S3Store] = {}
        self._lock = Lock()

    def check(self) -> None:
        """Read an object that is in no repository: only the gateway says that it is missing."""
        what = "answer as an S3 gateway"
        with suppress(NotFoundError), translated(what):
            obstore.get(self._store("perago-check", PIECE), f"main/{uuid.uuid4().hex}")
            raise ValueError("it has an object that was never written")

    def read(self, repository: str, ref: str, key: str, size: int) -> Iterator[memoryview]:
        """Read an object in ranges, some ahead, so that hashing does not delay the next request."""
        store, path = self._store(repository, PIECE), f"{ref}/{key}"
        with translated(f"read object {key!r}"):
            if size <= PIECE:
                yield _read_piece(store, path, None, size)
            else:
                yield from _read_pieces(store, path, size)

    def write(
        self, repository: str, branch: str, key: str, source: Path, content_type: str
    ) -> None:
        """Upload one file, in parts if it is large."""
        piece = piece_size(source.stat().st_size)
        with translated(f"write object {key!r}", changes=True):
            obstore.put(
                self._store(repository, piece),
                f"{branch}/{key}",
                source,
                attributes={"Content-Type": content_type},
                chunk_size=piece,
                max_concurrency=pieces_at_once(piece),
            )

    def _store(self, repository: str, piece: int) -> S3Store:
        with self._lock:
            key = (repository, piece)
            if key not in self._stores:
                self._stores[key] = _open_store(self._connection, repository, piece)
            return self._stores[key]


def _read_pieces(store: S3Store, path: str, size: int) -> Iterator[memoryview]:
    starts = range(0, size, PIECE)
    with ThreadPoolExecutor(_PIECES_AHEAD, thread_name_prefix="perago-range") as ahead:

        def request(start: int) -> Future[memoryview]:
            return ahead.submit(_read_piece, store, path, start, min(PIECE, size - start))

        pending = [request(start) for start in starts[:_PIECES_AHEAD]]
        for start in starts[_PIECES_AHEAD:]:
            yield pending.pop(0).result()
            pending.append(request(start))
        for piece in pending:
            yield piece.result()


def _read_piece(store: S3Store, path: str, start: int | None, length: int) -> memoryview:
    """Read a range, or a whole object; a longer answer is not taken into memory."""
    options: GetOptions = {} if start is None else {"range": (start, start + length)}
    answer = obstore.get(store, path, options=options)
    first, end = answer.range
    if end - first != length:
        raise ValueError(f"the answer has {end - first} bytes instead of {length}")
    # In one call: each part of a stream would be handed over from obstore's threads by itself.
    content = memoryview(answer.bytes())
    if len(content) != length:
        raise ValueError(f"the answer has {len(content)} bytes instead of {length}")
    return content


def _open_store(connection: LakeFSConnection, repository: str, piece: int) -> S3Store:
    """Open a store that ignores the AWS variables and the proxies of the environment.

    obstore reads them all, and arguments take precedence. The variable of the S3 endpoint, for
    example, would send the requests to another server.
    """
    client: ClientConfig = {
        "allow_http": connection.gateway.startswith("http://"),
        "connect_timeout": timedelta(seconds=connection.connect_timeout),
        "read_timeout": timedelta(seconds=connection.read_timeout),
        # For a whole request, which moves one piece at most, also on a slow connection.
        "timeout": timedelta(seconds=_PIECE_PATIENCE * connection.read_timeout * piece / PIECE),
        # A proxy that is set hides those of the environment, and all hosts are excluded from it.
        "proxy_url": "http://127.0.0.1:9",
        "proxy_excludes": "*,0.0.0.0/0,::/0",
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
