"""Objects through LakeFS's S3 gateway, with obstore."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import obstore
from obstore.store import S3Store

from perago.connections import LakeFSConnection
from perago.errors import NotFoundError
from perago.lakefs.errors import translated
from perago.lakefs.pieces import PIECE_PATIENCE, pieces_at_once, read_ahead
from perago.retry import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS
from perago.transfer.inventory import PIECE, piece_size

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig

_REFUSED = re.compile(r"[\x00-\x1f\x7f]|/\Z")


def takes_key(key: str) -> bool:
    """Return whether obstore can use a key: no control character, no slash at the end."""
    return _REFUSED.search(key) is None


class GatewayClient:
    """Reads and writes objects through the S3 gateway. Thread-safe."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection
        # By the size of a piece.
        self._stores: dict[int, S3Store] = {}
        self._lock = Lock()

    def check(self) -> None:
        """Read an object that is in no repository: only the gateway says that it is missing."""
        what = "answer as an S3 gateway"
        with suppress(NotFoundError), translated(what):
            obstore.get(self._store(PIECE), f"perago-check/main/{uuid.uuid4().hex}")
            raise ValueError("it has an object that was never written")

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        """Read an object, a large one in pieces and from any of them on."""
        store, path = self._store(PIECE), f"{repository}/{ref}/{key}"
        with translated(f"read object {key!r}"):
            if size <= PIECE:
                yield _read_piece(store, path, None, size)
            else:
                yield from read_ahead(partial(_read_piece, store, path), size, start)

    def write(self, repository: str, branch: str, key: str, source: Path, content_type: str) -> str:
        """Upload one file, in parts if it is large; return the checksum that LakeFS gave it."""
        piece = piece_size(source.stat().st_size)
        with translated(f"write object {key!r}", changes=True):
            put = obstore.put(
                self._store(piece),
                f"{repository}/{branch}/{key}",
                source,
                attributes={"Content-Type": content_type},
                chunk_size=piece,
                max_concurrency=pieces_at_once(piece),
            )
        return (put["e_tag"] or "").strip('"')

    def _store(self, piece: int) -> S3Store:
        with self._lock:
            if piece not in self._stores:
                self._stores[piece] = _open_store(self._connection, piece)
            return self._stores[piece]


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


def _open_store(connection: LakeFSConnection, piece: int) -> S3Store:
    """Open a store of all repositories; it ignores the AWS variables and the proxies around it.

    obstore reads them all, and arguments take precedence. The variable of the S3 endpoint, for
    example, would send the requests to another server.
    """
    client: ClientConfig = {
        "allow_http": connection.gateway.startswith("http://"),
        "connect_timeout": timedelta(seconds=connection.connect_timeout),
        "read_timeout": timedelta(seconds=connection.read_timeout),
        # For a whole request, which moves one piece at most, also on a slow connection.
        "timeout": timedelta(seconds=PIECE_PATIENCE * connection.read_timeout * piece / PIECE),
        # A proxy that is set hides those of the environment, and all hosts are excluded from it.
        "proxy_url": "http://127.0.0.1:9",
        "proxy_excludes": "*,0.0.0.0/0,::/0",
    }
    if connection.authorities is not None:
        client["root_certificate"] = connection.authorities.pem
    return S3Store(
        # The repository begins each path instead: a store of each would have connections of its
        # own, which the first step on a repository would have to open.
        "perago",
        endpoint=connection.gateway,
        aws_endpoint_url_s3=connection.gateway,
        credential_provider=_Credentials(connection),
        region="us-east-1",
        virtual_hosted_style_request=True,
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
