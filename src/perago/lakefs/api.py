"""LakeFS's REST API: bounded requests, every answer validated."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Generic, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter
from tenacity import Retrying

from perago.connections import LakeFSConnection
from perago.errors import BackendUnavailableError
from perago.http_client import HttpClient
from perago.http_errors import parse_json
from perago.lakefs.errors import from_answer, translated
from perago.lakefs.shared_call import begun
from perago.names import ENTRIES_PER_PAGE
from perago.retry import UNSENT_SECONDS, retry_change, retrying_unsent

Parsed = TypeVar("Parsed")
Entry = TypeVar("Entry")
Reader = Callable[[bytes], Parsed]
RequestBody = bytes | Path | Mapping[str, Any] | None

_JSON = "application/json"
_CONNECTIONS = 32
# The slowest upload of one object through the API that is waited for, in bytes per second.
_SLOWEST = 64 << 10
_COMMIT_ID = re.compile(rb'^"?[0-9a-f]{8,}"?$')

_Id = Annotated[str, StringConstraints(min_length=1)]
# What 64 bits hold: larger numbers are of no server, and no float.
_Size = Annotated[int, Field(ge=0, lt=1 << 63)]
# In seconds, bounded by the years that a datetime can hold.
_Moment = Annotated[int, Field(ge=0, lt=1 << 37)]


class LakeFSMessage(BaseModel):
    """A part of an answer: the fields that are used, which must have their types."""

    model_config = ConfigDict(strict=True, frozen=True, hide_input_in_errors=True)


class CommitMessage(LakeFSMessage):
    id: _Id
    parents: list[_Id]
    creation_date: _Moment
    committer: str = ""
    message: str = ""
    metadata: dict[str, str] | None = None


class RefMessage(LakeFSMessage):
    id: _Id
    commit_id: _Id


class RepositoryMessage(LakeFSMessage):
    id: _Id
    default_branch: _Id


class MergeMessage(LakeFSMessage):
    reference: _Id


class MergeBaseMessage(LakeFSMessage):
    source_commit_id: _Id
    destination_commit_id: _Id
    base_commit_id: _Id


class ObjectMessage(LakeFSMessage):
    path: str
    path_type: Literal["object", "common_prefix"]
    size_bytes: _Size | None = None
    checksum: str | None = None
    content_type: str | None = None
    metadata: dict[str, str] | None = None
    # Where the object is, or if it was asked for, a presigned address of it, which is a secret.
    physical_address: Annotated[str | None, Field(repr=False)] = None
    # A Go server's time that is not set is in the year 1.
    physical_address_expiry: Annotated[int, Field(gt=-1 << 37, lt=1 << 37)] | None = None


class ChangeMessage(LakeFSMessage):
    path: str
    type: Literal["added", "changed", "removed"]
    size_bytes: _Size | None = None


class RunMessage(LakeFSMessage):
    run_id: _Id


class _Failure(LakeFSMessage):
    status_code: Annotated[int, Field(ge=0, lt=1000)]
    message: str


class DeletionMessage(LakeFSMessage):
    errors: list[_Failure] | None


class _User(LakeFSMessage):
    id: _Id


class UserMessage(LakeFSMessage):
    user: _User


class _Version(LakeFSMessage):
    version: _Id


class ConfigMessage(LakeFSMessage):
    version_config: _Version


class _Pagination(LakeFSMessage):
    has_more: bool
    next_offset: str = ""


class ListingPage(LakeFSMessage, Generic[Entry]):
    results: list[Entry]
    pagination: _Pagination


COMMIT = TypeAdapter(CommitMessage)
REF = TypeAdapter(RefMessage)
REPOSITORY = TypeAdapter(RepositoryMessage)
MERGE = TypeAdapter(MergeMessage)
MERGE_BASE = TypeAdapter(MergeBaseMessage)
STAT = TypeAdapter(ObjectMessage)
DELETION = TypeAdapter(DeletionMessage)
USER = TypeAdapter(UserMessage)
CONFIG = TypeAdapter(ConfigMessage)
COMMITS = TypeAdapter(ListingPage[CommitMessage])
REFS = TypeAdapter(ListingPage[RefMessage])
REPOSITORIES = TypeAdapter(ListingPage[RepositoryMessage])
OBJECTS = TypeAdapter(ListingPage[ObjectMessage])
CHANGES = TypeAdapter(ListingPage[ChangeMessage])
RUNS = TypeAdapter(ListingPage[RunMessage])


def parsed(kind: TypeAdapter[Parsed]) -> Reader[Parsed]:
    """Return a reader of bodies that hold ``kind`` as JSON."""
    return lambda body: kind.validate_python(parse_json(body))


def commit_id(body: bytes) -> None:
    """Read the body of an answer that is the id of a commit."""
    if not _COMMIT_ID.match(body.strip()):
        raise ValueError("the answer is not the id of a commit")


def at_path(*segments: str) -> str:
    """Build the path of a resource, each segment quoted."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def credentials(connection: LakeFSConnection) -> str:
    """Write the credentials as the header ``Authorization: Basic`` has them."""
    secret = connection.secret_access_key.get_secret_value()
    return base64.b64encode(f"{connection.access_key_id}:{secret}".encode()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request(Generic[Parsed]):
    """A request, and how its answer is read."""

    what: str
    method: str
    path: str
    read: Reader[Parsed]
    statuses: tuple[int, ...]
    seconds: float
    changes: bool
    query: Mapping[str, Any] | None = None
    body: RequestBody = None
    headers: Mapping[str, str] | None = None


class LakeFSApi:
    """Sends requests with our timeouts and credentials. Thread-safe."""

    def __init__(self, connection: LakeFSConnection) -> None:
        self._connection = connection
        secret, pair = connection.secret_access_key.get_secret_value(), credentials(connection)
        self._headers = {"Accept": f"{_JSON}, */*", "Authorization": f"Basic {pair}"}
        self._secrets = (pair, secret)
        authorities = connection.authorities
        self._http = HttpClient(
            connection.api,
            connect_timeout=connection.connect_timeout,
            pem=authorities.pem if authorities else None,
            connections=_CONNECTIONS,
        )
        self.seconds = connection.connect_timeout + connection.read_timeout

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @property
    def clock_difference(self) -> float | None:
        """How many seconds LakeFS's clock is ahead, by its last answer."""
        return self._http.clock_difference

    def get(
        self,
        what: str,
        path: str,
        read: Reader[Parsed],
        query: Mapping[str, Any] | None = None,
        *,
        retrier: Retrying,
        headers: Mapping[str, str] | None = None,
        status: int = 200,
        seconds: float | None = None,
    ) -> Parsed:
        """Read something, with retries."""
        request = _Request(
            what=what,
            method="GET",
            path=path,
            read=read,
            statuses=(status,),
            seconds=seconds or self.seconds,
            changes=False,
            query=query,
            headers=headers,
        )
        return retrier(lambda: self._translated_exchange(request))

    def pages(
        self,
        what: str,
        path: str,
        kind: TypeAdapter[ListingPage[Entry]],
        query: Mapping[str, Any] | None = None,
        *,
        retrier: Callable[[], Retrying],
    ) -> Iterator[Entry]:
        """Read a list, page by page; every page is retried by itself.

        The next page is read while the caller deals with the entries of this one.
        """

        def read(after: str) -> ListingPage[Entry]:
            fields = {**(query or {}), "after": after, "amount": ENTRIES_PER_PAGE}
            return self.get(what, path, parsed(kind), fields, retrier=retrier())

        after, page = "", read("")
        while page.pagination.has_more:
            # A server that repeats a page would be listed for ever.
            if _key(page.pagination.next_offset) <= _key(after):
                yield from page.results
                raise BackendUnavailableError(f"LakeFS could not {what}: it repeats a page")
            after = page.pagination.next_offset
            following = begun(partial(read, after))
            yield from page.results
            page = following.result()
        yield from page.results

    def has_any(
        self,
        what: str,
        path: str,
        kind: TypeAdapter[ListingPage[Entry]],
        query: Mapping[str, Any] | None = None,
        *,
        retrier: Retrying,
    ) -> bool:
        """Return whether a list has an entry."""
        fields = {**(query or {}), "amount": 1}
        return bool(self.get(what, path, parsed(kind), fields, retrier=retrier).results)

    def change(
        self,
        what: str,
        method: str,
        path: str,
        read: Reader[Parsed],
        *,
        status: int | tuple[int, ...],
        retrier: Retrying,
        query: Mapping[str, Any] | None = None,
        body: RequestBody = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> Parsed:
        """Send an idempotent change, with retries."""
        request = _Request(
            what=what,
            method=method,
            path=path,
            read=read,
            statuses=status if isinstance(status, tuple) else (status,),
            seconds=seconds or self.seconds,
            changes=True,
            query=query,
            body=body,
            headers=headers,
        )
        return retry_change(retrier, lambda: self._translated_exchange(request))

    def change_once(
        self,
        what: str,
        method: str,
        path: str,
        read: Reader[Parsed],
        *,
        status: int,
        query: Mapping[str, Any] | None = None,
        body: RequestBody = None,
        seconds: float | None = None,
    ) -> Parsed:
        """Send a change that must not be repeated; retried only as long as it cannot be sent."""
        request = _Request(
            what=what,
            method=method,
            path=path,
            read=read,
            statuses=(status,),
            seconds=seconds or self.seconds,
            changes=True,
            query=query,
            body=body,
        )
        ends = time.monotonic() + request.seconds

        def send() -> Parsed:
            left = max(ends - time.monotonic(), 0.0)
            return self._exchange(replace(request, seconds=left))

        with translated(what, changes=True):
            return retrying_unsent(min(UNSENT_SECONDS, request.seconds))(send)

    def _translated_exchange(self, request: _Request[Parsed]) -> Parsed:
        with translated(request.what, changes=request.changes):
            return self._exchange(request)

    def _exchange(self, request: _Request[Parsed]) -> Parsed:
        headers = {**self._headers, **(request.headers or {})}
        seconds = request.seconds
        with ExitStack() as held:
            content: bytes | BinaryIO | None
            if isinstance(request.body, Path):
                # Opened for each try: a failed one has moved the file's position.
                content = held.enter_context(request.body.open("rb"))
                size = request.body.stat().st_size
                headers["Content-Length"] = str(size)
                seconds += size / _SLOWEST
            elif isinstance(request.body, Mapping):
                content = json.dumps(request.body).encode()
                headers["Content-Type"] = _JSON
            else:
                content = request.body or (None if request.method == "GET" else b"")
            answer = self._http.request(
                request.method,
                request.path,
                seconds=seconds,
                query=request.query,
                headers=headers,
                content=content,
            )
        if answer.status in request.statuses:
            return request.read(answer.body)
        if 200 <= answer.status < 300:
            raise ValueError(f"the answer has status {answer.status}, which does not belong here")
        raise from_answer(request.what, answer, changes=request.changes, secrets=self._secrets)


def _key(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
