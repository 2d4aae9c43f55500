"""Objects through the S3 gateway, with obstore: in bounded pieces, several of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import obstore
from obstore.store import S3Store

from perago.lakefs.connection import LakeFSConnection
from perago.lakefs.errors import translated
from perago.lakefs.patience import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS

if TYPE_CHECKING:
    from obstore.store import ClientConfig

PIECE = 8 << 20
_PIECES_AHEAD = 3


class Gateway:
    """Reads and writes objects. Safe to use from many threads."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection
        self._stores: dict[str, S3Store] = {}
        self._lock = Lock()

    def read(self, repository: str, ref: str, key: str, size: int) -> Iterator[memoryview]:
        """Ranges in order, a few of them ahead, so that hashing and writing never stop the line."""
        store, path = self._store(repository), f"{ref}/{key}"
        with translated(f"read object {key!r}"):
            if size <= PIECE:
                yield memoryview(obstore.get(store, path).bytes())
            else:
                yield from _read_pieces(store, path, size)

    def write(
        self, repository: str, branch: str, key: str, source: Path, content_type: str
    ) -> None:
        """Upload one file; a large one in parts."""
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

        def ask(start: int) -> Future[Any]:
            length = min(PIECE, size - start)
            return ahead.submit(obstore.get_range, store, path, start=start, length=length)

        pending = [ask(start) for start in starts[:_PIECES_AHEAD]]
        for start in starts[_PIECES_AHEAD:]:
            yield memoryview(pending.pop(0).result())
            pending.append(ask(start))
        for piece in pending:
            yield memoryview(piece.result())


def _open_store(connection: LakeFSConnection, repository: str) -> S3Store:
    """A store that takes nothing from the AWS variables a worker's environment may hold.

    obstore reads them all; what is given here wins. The service's own endpoint variable would
    even send our requests to another server.
    """
    client: ClientConfig = {
        "allow_http": connection.gateway.startswith("http://"),
        "connect_timeout": timedelta(seconds=connection.connect_timeout),
        "read_timeout": timedelta(seconds=connection.read_timeout),
        # For a whole request, which moves one piece at most, also on a slow line.
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
        # obstore repeats by itself, also a body that was cut off and a write without an answer.
        retry_config={
            "retry_timeout": timedelta(seconds=connection.patience),
            "backoff": {
                "init_backoff": timedelta(seconds=FIRST_WAIT_SECONDS),
                "max_backoff": timedelta(seconds=LONGEST_WAIT_SECONDS),
            },
        },
    )


class _Credentials:
    """Gives obstore the key pair when it signs, and no session token."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection

    def __call__(self) -> Any:
        return {
            "access_key_id": self._connection.access_key_id,
            "secret_access_key": self._connection.secret_access_key.get_secret_value(),
            "token": None,
            "expires_at": None,
        }
