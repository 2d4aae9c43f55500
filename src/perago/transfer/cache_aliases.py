"""Aliases of the object cache: which digest an object had whose checksum does not tell it.

The place of an object in the object store names the digest that its content had when it was read.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from perago.transfer.cache_space import BLOCK, READ, created, mark_used, unlinked
from perago.transfer.inventory import DIGEST, RemoteObject

ALIASES = "aliases"


class Aliases:
    """The aliases of one server's objects, each in a file."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        self._server = server

    def find(self, repository: str, remote: RemoteObject) -> str | None:
        """Return the digest that an object had when it was read; None if that is not known."""
        if not remote.address:
            return None
        path, place = self._place(repository, remote)
        try:
            descriptor = os.open(path, READ)
        except OSError:
            return None
        try:
            text = os.read(descriptor, BLOCK).decode("ascii", "replace")
            mark_used(descriptor, os.fstat(descriptor))
        except OSError:
            return None
        finally:
            os.close(descriptor)
        digest, _, sealed = text.partition(" ")
        if not DIGEST.fullmatch(digest) or sealed != seal(place, digest):
            unlinked(path)
            return None
        return digest

    def write(self, repository: str, remote: RemoteObject, digest: str) -> None:
        """Note the digest of an object that was read."""
        path, place = self._place(repository, remote)
        with created(path) as descriptor:
            if descriptor is not None:
                os.write(descriptor, f"{digest} {seal(place, digest)}".encode())

    def _place(self, repository: str, remote: RemoteObject) -> tuple[str, str]:
        """Return the path of an object's alias, and the place of the object that it is for."""
        parts = (self._server, repository, remote.address, remote.checksum, str(remote.size))
        place = "\0".join(parts)
        name = seal(place, "")
        return f"{self._folder}/{ALIASES}/{name[:2]}/{name}", place


def seal(place: str, digest: str) -> str:
    """Return a hash of a digest and the place that it belongs to."""
    return hashlib.sha256(f"{place}\0{digest}".encode("utf-8", "surrogatepass")).hexdigest()
