"""An https front for a plain server, with a certificate of an authority that nobody knows."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Front:
    """Where it is, and the authority to trust for it."""

    url: str
    ca_bundle: Path


@contextlib.contextmanager
def https_before(upstream: str, folder: Path) -> Iterator[Front]:
    """Serve ``upstream`` over TLS on a loopback port, within the block."""
    bundle, certificate, key = _certificates(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    parts = urlsplit(upstream)
    server = _Server((parts.hostname or "", parts.port or 80), context)
    try:
        yield Front(f"https://localhost:{server.port}", bundle)
    finally:
        server.close()


class _Server:
    def __init__(self, upstream: tuple[str, int], context: ssl.SSLContext) -> None:
        self._upstream, self._context = upstream, context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    def close(self) -> None:
        for end in list(self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(10)
        for end in self._ends:
            end.close()

    def _spawn(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._spawn(self._serve, self._listener.accept()[0])

    def _serve(self, plain: socket.socket) -> None:
        self._ends.append(plain)
        try:
            client = self._context.wrap_socket(plain, server_side=True)
        except OSError:  # a client that does not trust us hangs up
            plain.close()
            return
        server = socket.create_connection(self._upstream)
        self._ends += [client, server]
        self._spawn(self._pump, server, client)
        self._pump(client, server)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A bundle of two authorities, and a certificate for localhost that the second one signed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("stranger", "authority"):
        _openssl(
            folder, "req", "-x509", *_NEW, f"{name}.key", "-out", f"{name}.pem", *_subject(name)
        )
    request = ("req", *_NEW, "server.key", "-out", "server.csr", *_subject("localhost"))
    _openssl(folder, *request)
    (folder / "server.ext").write_text("subjectAltName=DNS:localhost\n")
    signing = ("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-days", "2")
    files = ("-in", "server.csr", "-out", "server.pem", "-extfile", "server.ext")
    _openssl(folder, "x509", "-req", *files, *signing)
    bundle = folder / "bundle.pem"
    bundle.write_text("".join((folder / f"{n}.pem").read_text() for n in ("stranger", "authority")))
    return bundle, folder / "server.pem", folder / "server.key"


_NEW = ("-newkey", "rsa:2048", "-nodes", "-keyout")


def _subject(name: str) -> tuple[str, ...]:
    return ("-subj", f"/CN={name}")


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
