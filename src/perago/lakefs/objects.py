"""The data plane of LakeFS: objects straight from and to its store, or through the S3 gateway.

Through the LakeFS API go listings, deletes, many small objects at once, large ones that are saved
to a file, and what the gateway's client cannot do: objects whose keys it refuses, and user metadata
(the gateway renames its keys, and the upload call changes their case).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, model_validator
from tenacity import Retrying

from perago.connections import LakeFSConnection
from perago.http_client import RequestError
from perago.http_errors import nothing
from perago.lakefs.api import (
    CHANGES,
    DELETION,
    STAT,
    ChangeMessage,
    LakeFSApi,
    ListingPage,
    ObjectMessage,
    at_path,
    parsed,
)
from perago.lakefs.api_objects import ApiObjects
from perago.lakefs.errors import from_message
from perago.lakefs.gateway import GatewayClient, takes_key
from perago.lakefs.pieces import PIECE_PATIENCE
from perago.lakefs.presigned import PresignedClient, StoreUnusableError
from perago.lakefs.refs import branch_path, ref_path
from perago.lakefs.staging import Target
from perago.lakefs.store_connection import FileError
from perago.protocol.ports import Change
from perago.protocol.workspace import StagingBranch
from perago.retry import retrying
from perago.transfer.inventory import (
    DEFAULT_CONTENT_TYPE,
    DIGEST,
    NO_METADATA,
    PIECE,
    RemoteObject,
    SmallWrite,
)

# Of an object in parts some add their number, and others leave it out.
_MD5 = re.compile(rf"({DIGEST.pattern})(-\d+)?")


class _ListedMessage(ObjectMessage):
    @model_validator(mode="after")
    def _has_size(self) -> Self:
        # Of an object without a size nothing would be read.
        if self.path_type == "object" and self.size_bytes is None:
            raise ValueError("an object without a size")
        return self


_LISTED = TypeAdapter(ListingPage[_ListedMessage])


class LakeFSObjects:
    """Implements the ports ``ObjectStore`` and ``Objects``. Thread-safe."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection
        self._gateway = GatewayClient(connection)
        self._api = LakeFSApi(connection)
        self._presigned = PresignedClient(connection, self._api)
        self._direct = ApiObjects(connection)

    def close(self) -> None:
        """Close the connections."""
        self._direct.close()
        self._presigned.close()
        self._api.close()

    def check_gateway(self) -> None:
        """Raise ``BackendError`` if the S3 gateway is unavailable or refuses the credentials."""
        self._gateway.check()

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        listed = self._listed(repository, ref, prefix, "")
        return (_as_object(item) for item in listed if item.path_type == "object")

    def level(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject | str]:
        for item in self._listed(repository, ref, prefix, "/"):
            yield _as_object(item) if item.path_type == "object" else item.path

    def _listed(
        self, repository: str, ref: str, prefix: str, delimiter: str
    ) -> Iterator[_ListedMessage]:
        path = f"{ref_path(repository, ref)}/objects/ls"
        what = f"list {prefix!r} at {ref} of {repository!r}"
        fields = {"prefix": prefix, "delimiter": delimiter, "user_metadata": "true"}
        return self._api.pages(what, path, _LISTED, fields, retrier=self._retrier)

    def uncommitted(self, staging: StagingBranch) -> Iterator[Change]:
        what = f"compare branch {staging.branch!r} of {staging.repository!r} with its HEAD"
        path = f"{branch_path(staging.repository, staging.branch)}/diff"
        return map(_as_change, self._api.pages(what, path, CHANGES, retrier=self._retrier))

    def changes(
        self, repository: str, base: str, commit: str, prefix: str = ""
    ) -> Iterator[Change]:
        what = f"compare {commit} with {base} in {repository!r}"
        path = f"{ref_path(repository, base)}/diff{at_path(commit)}"
        query = {"type": "two_dot", "prefix": prefix}
        return map(_as_change, self._api.pages(what, path, CHANGES, query, retrier=self._retrier))

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        if start == size:
            return
        done = start
        if self._presigned.can_read():
            try:
                for piece in self._presigned.read(repository, ref, key, size, start):
                    yield piece
                    done += len(piece)
            except StoreUnusableError:
                pass  # Pieces are asked for together: the first may have come, and another not.
            else:
                return
        by_gateway = self._gateway.read if takes_key(key) else self._read_through_api
        yield from by_gateway(repository, ref, key, size, done)

    def read_many(
        self, repository: str, ref: str, objects: Iterable[RemoteObject], at_once: int
    ) -> Iterator[tuple[RemoteObject, memoryview]]:
        by = self._presigned.read_many if self._presigned.can_read() else self._direct.read_many
        return by(repository, ref, objects, at_once)

    def save(
        self, repository: str, ref: str, key: str, size: int, descriptor: int
    ) -> Iterator[int]:
        by = self._presigned.save if self._presigned.can_read() else self._direct.save
        with suppress(StoreUnusableError, RequestError, FileError):
            yield from by(repository, ref, key, size, descriptor)

    def _read_through_api(
        self, repository: str, ref: str, key: str, size: int, first: int
    ) -> Iterator[memoryview]:
        for start in range(first, size, PIECE):
            end = min(start + PIECE, size) - 1
            yield self._api.get(
                f"read object {key!r}",
                f"{ref_path(repository, ref)}/objects",
                partial(_exactly, length=end + 1 - start),
                {"path": key},
                headers={"Range": f"bytes={start}-{end}"},
                status=206,
                seconds=PIECE_PATIENCE * self._connection.read_timeout,
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
    ) -> str:
        if self._presigned.can_write(source.stat().st_size):
            target = Target(repository, branch, key, content_type, metadata)
            with suppress(StoreUnusableError):
                return self._presigned.write(target, source)
        checksum = ""
        if takes_key(key):
            checksum = self._gateway.write(repository, branch, key, source, content_type)
        else:
            self._write_through_api(repository, branch, key, source, content_type)
        if metadata:
            self._set_metadata(repository, branch, key, metadata)
        return _as_digest(checksum)

    def write_many(
        self, repository: str, branch: str, writes: Iterable[SmallWrite], at_once: int
    ) -> Iterator[tuple[SmallWrite, str]]:
        # Through LakeFS also where it offers addresses: one request instead of three.
        return self._direct.write_many(repository, branch, writes, at_once)

    def _write_through_api(
        self, repository: str, branch: str, key: str, source: Path, content_type: str
    ) -> None:
        self._api.change(
            f"write object {key!r}",
            "POST",
            f"{branch_path(repository, branch)}/objects",
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
            f"{branch_path(repository, branch)}/objects/stat/user_metadata",
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
            f"{branch_path(repository, branch)}/objects/delete",
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


def _as_object(item: ObjectMessage) -> RemoteObject:
    size, checksum, address = item.size_bytes or 0, (item.checksum or "").strip('"'), ""
    # Of a small object the checksum says enough, and there may be a million of them.
    if size > PIECE:
        address = item.physical_address or ""
        checksum = _as_digest(checksum) or checksum
    return RemoteObject(
        key=item.path,
        size=size,
        # There may be a million of them, and few content types.
        content_type=sys.intern(item.content_type or DEFAULT_CONTENT_TYPE),
        metadata=item.metadata or NO_METADATA,
        checksum=checksum,
        address=address,
    )


def _as_digest(checksum: str) -> str:
    """Return a checksum that has the form of a digest as one, and nothing for another."""
    found = _MD5.fullmatch(checksum)
    return found[1] if found else ""


def _as_change(item: ChangeMessage) -> Change:
    return Change(item.path, item.type, item.size_bytes or 0)


def _exactly(body: bytes, length: int) -> memoryview:
    if len(body) != length:
        raise ValueError(f"the answer has {len(body)} bytes instead of {length}")
    return memoryview(body)
