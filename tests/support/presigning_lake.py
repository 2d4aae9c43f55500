"""A LakeFS that gives out presigned addresses, its store and its gateway: one server in memory.

It has the requests with which objects are read and written, for what a real store does not do when
it is asked to: to refuse an address, to go away in the middle, to lose an answer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REPOSITORY, BRANCH, COMMIT = "repo", "staging", "c" * 64
SIGNATURE = "X-Amz-Signature=5ec7e7"
_API = f"/api/v1/repositories/{REPOSITORY}"
_REFUSED = "<Error><Code>AccessDenied</Code><SignatureProvided>{}</SignatureProvided></Error>"
_SHOWN = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}


@dataclass
class Reply:
    """What a request is answered with."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object, status: int = 200) -> Reply:
        return cls(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


@dataclass
class Asked:
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


# Something that happens instead of an answer, or after it was made: None cuts the connection.
Fault = Callable[[Reply], Reply | None]


class PresigningLake:
    """One repository with one commit and one branch, which are the same here."""

    def __init__(self, *, presigns: bool = True, in_parts: bool = True, kind: str = "s3") -> None:
        self.objects: dict[str, bytes] = {}
        self.labels: dict[str, dict[str, Any]] = {}
        self.requests: list[Asked] = []
        self.connections = 0
        # Parts that arrive with another byte, once each, and whether the store compares them with
        # what they come with.
        self.damaged_parts: list[str] = []
        self.checks_content = True
        self._storage = {
            "blockstore_type": kind,
            "pre_sign_support": presigns,
            "pre_sign_multipart_upload": in_parts,
        }
        self._places: dict[str, bytes] = {}
        self._faults: list[tuple[str, Fault]] = []
        self._signed = self._oldest = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        # Where addresses lead to.
        self.store_url = self.url

    def __enter__(self) -> PresigningLake:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def break_next(self, line: str, fault: Fault, times: int = 1) -> None:
        """Have the next requests that begin like ``line`` go wrong."""
        self._faults += [(line, fault)] * times

    def lines(self, start: str = "") -> list[str]:
        """The requests so far, without what they ask for."""
        return [asked.line for asked in self.requests if asked.line.startswith(start)]

    def expire(self) -> None:
        """Let all addresses expire that were given out so far."""
        self._oldest = self._signed + 1

    def refuse_all(self) -> None:
        """Refuse all addresses, also those that are yet to be given out."""
        self._oldest = 1 << 60

    def answer(self, asked: Asked) -> Reply | None:
        with self._lock:
            self.requests.append(asked)
            at = next((n for n, (line, _) in enumerate(self._faults) if begins(asked, line)), None)
            fault = self._faults.pop(at)[1] if at is not None else None
            reply = self._carry_out(asked)
        return reply if fault is None else fault(reply)

    def _carry_out(self, asked: Asked) -> Reply:
        if asked.path.startswith("/store/"):
            return self._of_store(asked)
        if asked.path == "/api/v1/config":
            version = {"version": "1.84.0"}
            return Reply.of({"version_config": version, "storage_config": self._storage})
        if asked.path.startswith(f"{_API}/refs/"):
            return self._of_reads(asked)
        if asked.path.startswith(f"{_API}/branches/{BRANCH}/staging/"):
            return self._of_staging(asked)
        return self._of_gateway(asked)

    def _of_reads(self, asked: Asked) -> Reply:
        query = asked.query
        if asked.path.endswith("/stat"):
            if query["path"] not in self.objects:
                return Reply.of({"message": "not found"}, 404)
            return Reply.of(self._stat(query["path"], presign="presign" in query))
        found = sorted((key for key in self.objects if key > query["after"]), key=str.encode)
        page = found[: int(query["amount"])]
        more = len(page) < len(found)
        pagination = {"has_more": more, "next_offset": page[-1] if more else ""}
        entries = [self._stat(key, presign=True) for key in page]
        return Reply.of({"pagination": pagination, "results": entries})

    def _stat(self, key: str, *, presign: bool) -> dict[str, object]:
        address = self.labels.get(key, {}).get("place", f"s3://places/{key}")
        if presign:
            address = self._sign(f"o/{key.encode().hex()}")
        stat = {"path": key, "path_type": "object", "size_bytes": len(self.objects[key])}
        return {**stat, "physical_address": address}

    def _sign(self, place: str, extra: str = "") -> str:
        self._signed += 1
        return f"{self.store_url}/store/{place}?{SIGNATURE}&number={self._signed}{extra}"

    def _of_store(self, asked: Asked) -> Reply:
        if int(asked.query["number"]) < self._oldest:
            return Reply(403, _REFUSED.format(SIGNATURE).encode())
        place = asked.path.removeprefix("/store/") + asked.query.get("part", "")
        if asked.method == "PUT":
            content = asked.body
            if (part := asked.query.get("part", "")) in self.damaged_parts:
                self.damaged_parts.remove(part)
                content = bytes([content[0] ^ 1]) + content[1:]
            stated = asked.headers.get("content-md5", as_base64(content))
            if self.checks_content and stated != as_base64(content):
                return Reply(400, b"<Error><Code>BadDigest</Code></Error>")
            self._places[place] = content
            return Reply(200, headers={"ETag": f'"{md5(content)}"'})
        return _content(self.objects[bytes.fromhex(place.removeprefix("o/")).decode()], asked)

    def _of_staging(self, asked: Asked) -> Reply:
        key, step = asked.query["path"], asked.path.partition("/staging/staging/")[2].split("/")
        body = json.loads(asked.body or b"{}")
        place = f"p/{key.encode().hex()}"
        match asked.method, step:
            case "GET", ["backing"]:
                return Reply.of({"physical_address": place, "presigned_url": self._sign(place)})
            case "PUT", ["backing"]:
                self.objects[key] = self._places[body["staging"]["physical_address"]]
                self.labels[key] = body
            case "POST", ["pmpu"]:
                numbers = range(1, int(asked.query["parts"]) + 1)
                urls = [self._sign(place, f"&part={number}") for number in numbers]
                upload = {"upload_id": "u", "physical_address": place, "presigned_urls": urls}
                return Reply.of(upload, 201)
            case "PUT", ["pmpu", "u", "parts", number]:
                return Reply.of({"presigned_url": self._sign(place, f"&part={number}")})
            case "PUT", ["pmpu", "u"]:
                if self.labels.get(key, {}).get("place") == place:
                    return Reply.of({"message": "NoSuchUpload"}, 500)
                parts = [self._places.pop(f"{place}{it['part_number']}") for it in body["parts"]]
                self.objects[key] = b"".join(parts)
                self.labels[key] = {**body, "place": place}
            case _:
                return Reply(204)
        return Reply.of(self._stat(key, presign=False))

    def _of_gateway(self, asked: Asked) -> Reply:
        key = unquote(asked.path).split("/", 3)[-1]
        if asked.method == "PUT":
            self.objects[key] = asked.body
            return Reply(200, headers={"ETag": "x"})
        reply = _content(self.objects[key], asked)
        reply.headers |= {"ETag": "x", **_SHOWN}
        return reply


def _content(content: bytes, asked: Asked) -> Reply:
    """The content, or the range of it that is asked for."""
    if "range" not in asked.headers:
        return Reply(200, content)
    first, last = map(int, asked.headers["range"].removeprefix("bytes=").split("-"))
    part = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
    return Reply(206, content[first : last + 1], part)


def in_chunks(content: bytes, size: int = 100_000) -> bytes:
    """The content in chunks, as a server sends it that does not say how long it is."""
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


def begins(asked: Asked, line: str) -> bool:
    return asked.line.startswith(line)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def as_base64(content: bytes) -> str:
    """The MD5 as a header states it."""
    return base64.b64encode(bytes.fromhex(md5(content))).decode()


def cut(_: Reply) -> None:
    """Fault: what was asked for is done, and no answer comes."""


def chunked(reply: Reply) -> Reply:
    """Fault: the same answer, which does not say how long it is."""
    return replace(reply, headers={**reply.headers, "Transfer-Encoding": "chunked"})


def status(number: int, body: bytes = b"") -> Fault:
    """Fault: another answer."""
    return lambda _: Reply(number, body)


def _handler_for(lake: PresigningLake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            lake.connections += 1

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            query = {
                name: values[0]
                for name, values in parse_qs(parts.query, keep_blank_values=True).items()
            }
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            reply = lake.answer(Asked(self.command, parts.path, query, headers, body))
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            is_chunked = "Transfer-Encoding" in reply.headers
            if reply.status != 204 and not is_chunked:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(in_chunks(reply.body) if is_chunked else reply.body)

        do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815  the names http.server looks for

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
