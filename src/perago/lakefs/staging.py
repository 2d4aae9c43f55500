"""What LakeFS does for an upload past it: where the bytes go, and then the object on the branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import Field, StringConstraints, TypeAdapter
from tenacity import Retrying

from perago.errors import BackendError, BackendUnavailableError
from perago.http_errors import nothing
from perago.lakefs.addresses import PresignedAddress
from perago.lakefs.api import STAT, LakeFSApi, LakeFSMessage, at_path, parsed
from perago.lakefs.refs import branch_path, ref_path
from perago.retry import retry_change, retrying_times

# The slowest assembly of an object from its parts that is waited for, in bytes per second.
_SLOWEST_ASSEMBLY = 32 << 20

_Text = Annotated[str, StringConstraints(min_length=1)]
_Secret = Annotated[str, StringConstraints(min_length=1), Field(repr=False)]


class UploadLocation(LakeFSMessage):
    """A new place in the store, and the presigned address for writing there."""

    physical_address: _Text
    presigned_url: _Secret


class MultipartUpload(LakeFSMessage):
    """An upload in parts: its place, and a presigned address for each part."""

    upload_id: _Text
    physical_address: _Text
    presigned_urls: Annotated[list[str], Field(repr=False)]


class _PartLocation(LakeFSMessage):
    presigned_url: _Secret


_LOCATION = TypeAdapter(UploadLocation)
_UPLOAD = TypeAdapter(MultipartUpload)
_PART_LOCATION = TypeAdapter(_PartLocation)


@dataclass(frozen=True, slots=True)
class Target:
    """The object to be written."""

    repository: str
    branch: str
    key: str
    content_type: str
    metadata: dict[str, str]

    @property
    def what(self) -> str:
        return f"write object {self.key!r}"

    @property
    def staging(self) -> str:
        return f"{branch_path(self.repository, self.branch)}/staging"

    @property
    def labels(self) -> dict[str, Any]:
        return {"content_type": self.content_type, "user_metadata": self.metadata}


@dataclass(frozen=True, slots=True)
class UploadRequests:
    """Requests for uploads. Thread-safe."""

    api: LakeFSApi
    retrier: Callable[[], Retrying]

    def locate(self, target: Target) -> UploadLocation:
        """Ask for a place for a whole object."""
        return self.api.get(
            target.what,
            f"{target.staging}/backing",
            parsed(_LOCATION),
            {"path": target.key, "presign": "true"},
            retrier=self.retrier(),
        )

    def link(self, target: Target, location: UploadLocation, digest: str, size: int) -> None:
        """Put the object on the branch whose bytes were written to a place."""
        self.api.change(
            target.what,
            "PUT",
            f"{target.staging}/backing",
            parsed(STAT),
            status=200,
            query={"path": target.key},
            body={
                "staging": {"physical_address": location.physical_address},
                "checksum": digest,
                "size_bytes": size,
                **target.labels,
            },
            retrier=self.retrier(),
        )

    def begin(self, target: Target, count: int) -> MultipartUpload:
        """Begin an upload in so many parts."""
        return self.api.change(
            target.what,
            "POST",
            f"{target.staging}/pmpu",
            partial(_read_upload, count=count),
            status=201,
            query={"path": target.key, "parts": count},
            retrier=self.retrier(),
        )

    def locate_part(self, target: Target, upload: MultipartUpload, number: int) -> PresignedAddress:
        """Ask for another address for a part; the first one has number 1."""
        found = self.api.change(
            target.what,
            "PUT",
            f"{target.staging}/pmpu{at_path(upload.upload_id)}/parts/{number}",
            parsed(_PART_LOCATION),
            status=200,
            query={"path": target.key},
            body={"physical_address": upload.physical_address},
            retrier=self.retrier(),
        )
        return PresignedAddress.undated(found.presigned_url)

    def complete(
        self, target: Target, upload: MultipartUpload, etags: Sequence[str], size: int
    ) -> None:
        """Have the parts put together, and put the object on the branch.

        LakeFS answers a repeated request with an error if the first one was carried out, so the
        branch is read after each request without an answer.
        """
        parts = [{"part_number": number, "etag": etag} for number, etag in enumerate(etags, 1)]
        body = {"physical_address": upload.physical_address, "parts": parts, **target.labels}

        def once() -> None:
            try:
                self.api.change(
                    target.what,
                    "PUT",
                    f"{target.staging}/pmpu{at_path(upload.upload_id)}",
                    partial(_read_written, size=size),
                    status=200,
                    query={"path": target.key},
                    body=body,
                    retrier=retrying_times(1),
                    seconds=self.api.seconds + size / _SLOWEST_ASSEMBLY,
                )
            except BackendUnavailableError:
                if not self._is_written(target, upload, size):
                    raise

        retry_change(self.retrier(), once)

    def _is_written(self, target: Target, upload: MultipartUpload, size: int) -> bool:
        path = ref_path(target.repository, target.branch)
        try:
            found = self.api.get(
                target.what,
                f"{path}/objects/stat",
                parsed(STAT),
                {"path": target.key},
                retrier=retrying_times(1),
            )
        except BackendError:
            return False
        return (found.physical_address, found.size_bytes) == (upload.physical_address, size)

    def abort(self, target: Target, upload: MultipartUpload) -> None:
        """Have the store forget the parts; what is left of them is the store's to clean up."""
        with suppress(BackendError):
            self.api.change(
                target.what,
                "DELETE",
                f"{target.staging}/pmpu{at_path(upload.upload_id)}",
                nothing,
                status=204,
                query={"path": target.key},
                body={"physical_address": upload.physical_address},
                retrier=retrying_times(1),
            )


def _read_upload(body: bytes, count: int) -> MultipartUpload:
    upload = parsed(_UPLOAD)(body)
    if len(upload.presigned_urls) != count:
        raise ValueError(f"the answer has {len(upload.presigned_urls)} addresses for {count} parts")
    return upload


def _read_written(body: bytes, size: int) -> None:
    written = parsed(STAT)(body)
    if written.size_bytes != size:
        raise ValueError(f"the object has {written.size_bytes} bytes instead of {size}")
