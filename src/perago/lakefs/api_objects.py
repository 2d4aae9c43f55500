"""Objects through LakeFS's API: many small ones in one batch, and a large one into a file.

For them the API takes LakeFS no more time than its S3 gateway, and this side less: no request has
to be signed, and the answer to an upload says what LakeFS has now.

Nothing is retried here. What is left out is for the gateway's client, which tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import quote

from perago.connections import LakeFSConnection
from perago.http_client import RequestError
from perago.lakefs.api import STAT, credentials
from perago.lakefs.batch import BatchRequest
from perago.lakefs.pieces import PIECE_PATIENCE, read_ahead
from perago.lakefs.refs import branch_path, ref_path
from perago.lakefs.store_client import SplitAddress, StoreClient, request_head
from perago.transfer.inventory import RemoteObject, SmallWrite, digest_of


class ApiObjects:
    """Reads and writes objects. Thread-safe."""

    def __init__(self, connection: LakeFSConnection) -> None:
        authorities = connection.authorities
        self._client = StoreClient(
            connect_timeout=connection.connect_timeout,
            read_timeout=connection.read_timeout,
            pem=authorities.pem if authorities else None,
            and_usual=False,
        )
        self._api = connection.api
        self._seconds = PIECE_PATIENCE * connection.read_timeout
        self._authorization = f"Basic {credentials(connection)}"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def save(
        self, repository: str, ref: str, key: str, size: int, descriptor: int
    ) -> Iterator[int]:
        """Write an object to a file, and yield the lengths of its pieces, in order.

        Raises ``RequestError`` where the rest cannot be read, and ``FileError`` where it cannot be
        written.
        """
        url = f"{self._api}{ref_path(repository, ref)}/objects?path={quote(key, safe='')}"
        headers = {"Authorization": self._authorization}

        def save(start: int, length: int) -> int:
            answer = self._client.save(
                url,
                length,
                descriptor,
                start=start,
                total=size,
                seconds=self._seconds,
                headers=headers,
            )
            if answer.status != 206:
                raise RequestError(f"status {answer.status}", sent=True)
            return length

        return read_ahead(save, size)

    def read_many(
        self, repository: str, ref: str, objects: Iterable[RemoteObject], at_once: int
    ) -> Iterator[tuple[RemoteObject, memoryview]]:
        """Read small objects, in any order."""
        address = f"{self._api}{ref_path(repository, ref)}/objects"
        headers = {"Authorization": self._authorization}

        def request(remote: RemoteObject) -> BatchRequest[RemoteObject]:
            split = SplitAddress.of(f"{address}?path={quote(remote.key, safe='')}")
            head = request_head("GET", split, headers)
            return BatchRequest(remote, split.endpoint, head, 200, remote.size)

        requests = map(request, objects)
        return self._client.exchange_all(requests, at_once=at_once, seconds=self._seconds)

    def write_many(
        self, repository: str, branch: str, writes: Iterable[SmallWrite], at_once: int
    ) -> Iterator[tuple[SmallWrite, str]]:
        """Write small objects, in any order; yield each with its digest."""
        address = f"{self._api}{branch_path(repository, branch)}/objects"

        def request(write: SmallWrite) -> BatchRequest[SmallWrite]:
            split = SplitAddress.of(f"{address}?path={quote(write.key, safe='')}")
            headers = {
                "Authorization": self._authorization,
                "Content-Type": write.content_type,
                "Content-Length": str(len(write.content)),
            }
            head = request_head("POST", split, headers)
            return BatchRequest(write, split.endpoint, head + write.content, 201)

        requests = (request(write) for write in writes if _is_plain(write.content_type))
        answers = self._client.exchange_all(requests, at_once=at_once, seconds=self._seconds)
        for write, answer in answers:
            digest = digest_of(write.content)
            if _confirms(answer, write, digest):
                yield write, digest


def _is_plain(content_type: str) -> bool:
    """Return whether LakeFS takes a content type as that of the object: a form has others in it."""
    is_form = content_type.lower().startswith("multipart/")
    return content_type.isascii() and content_type.isprintable() and not is_form


def _confirms(answer: memoryview, write: SmallWrite, digest: str) -> bool:
    """Return whether LakeFS says that it has exactly what was sent."""
    try:
        found = STAT.validate_json(bytes(answer))
    except ValueError:
        return False
    wanted = (write.key, len(write.content), digest, write.content_type)
    return (found.path, found.size_bytes, found.checksum, found.content_type) == wanted
