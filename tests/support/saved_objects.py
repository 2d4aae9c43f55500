"""A large object in a file, as a download puts it there."""

from __future__ import annotations

from pathlib import Path

from perago.transfer.inventory import ObjectStore


def save_object(
    objects: ObjectStore, repository: str, ref: str, key: str, size: int, target: Path
) -> list[int]:
    """Save an object, and read what is left out from there on; return what was saved."""
    with target.open("w+b", buffering=0) as file:
        lengths = list(objects.save(repository, ref, key, size, file.fileno()))
        file.seek(sum(lengths))
        for piece in objects.read(repository, ref, key, size, sum(lengths)):
            file.write(piece)
    return lengths
