"""The path policy: which keys can be files here. The only place that decides."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perago.errors import ProjectionError
from perago.transfer.inventory import Projection

_MAX_SEGMENT_BYTES = 255
_MAX_PATH_BYTES = 4095
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class FileSystem:
    """What the local file system makes of names."""

    folds_case: bool = False
    folds_unicode: bool = False

    @classmethod
    def probe(cls, folder: Path) -> FileSystem:
        """Find out by looking: the same volume may be mounted either way."""
        name = folder / "perago-Pr\u00f6be"
        name.touch()
        try:
            return cls(
                folds_case=(folder / "PERAGO-pr\u00d6BE").exists(),
                folds_unicode=(folder / unicodedata.normalize("NFD", name.name)).exists(),
            )
        finally:
            name.unlink()

    def fold(self, path: str) -> str:
        """Two paths with the same fold are one file here."""
        folded = unicodedata.normalize("NFC", path) if self.folds_unicode else path
        return folded.casefold() if self.folds_case else folded


def check_projection(projection: Projection, folder: Path, system: FileSystem) -> None:
    """Raise one error that names every key that cannot be a file or folder in ``folder``."""
    bad = sorted(_bad_keys(projection, folder, system))
    if not bad:
        return
    shown = "\n".join(f"  {key!r}: {why}" for key, why in bad[:_SHOWN])
    more = f"\n  … and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    raise ProjectionError(f"{len(bad)} object keys cannot be files here:\n{shown}{more}")


def _bad_keys(
    projection: Projection, folder: Path, system: FileSystem
) -> Iterator[tuple[str, str]]:
    room = _MAX_PATH_BYTES - len(os.fsencode(folder)) - 1
    good_files: list[str] = []
    for path, item in projection.files.items():
        if why := path_problem(path, room):
            yield item.key, why
        else:
            good_files.append(path)
    good_markers: list[str] = []
    for path, item in projection.markers.items():
        if why := path_problem(path, room):
            yield item.key, why
        else:
            good_markers.append(path)
    yield from _clashes(projection, good_files, good_markers, system.fold)


def path_problem(path: str, room: int = _MAX_PATH_BYTES) -> str | None:
    """Why one relative path cannot be a file, or None."""
    segments = path.split("/")
    for segment in segments:
        if segment == "":
            return "an empty path segment"
        if segment in {".", ".."}:
            return f"the path segment {segment!r}"
    if "\x00" in path:
        return "a NUL character"
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "a name that is not valid UTF-8"
    if max(len(segment.encode()) for segment in segments) > _MAX_SEGMENT_BYTES:
        return f"a path segment of more than {_MAX_SEGMENT_BYTES} bytes"
    if len(encoded) > room:
        return "a path too long for this workspace root"
    return None


def _clashes(
    projection: Projection, files: list[str], markers: list[str], fold: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """Files that the file system would fold into one, and files where a folder must be."""
    seen: dict[str, str] = {}
    for path in files:
        other = seen.setdefault(fold(path), path)
        if other != path:
            yield projection.files[path].key, f"the file system takes it for {other!r}"
    for path in files:
        for parent in _parents(path):
            if fold(parent) in seen:
                yield projection.files[path].key, f"{seen[fold(parent)]!r} is a file"
                break
    for path in markers:
        for parent in (path, *_parents(path)):
            if fold(parent) in seen:
                yield projection.markers[path].key, f"{seen[fold(parent)]!r} is a file"
                break


def _parents(path: str) -> Iterator[str]:
    while (cut := path.rfind("/")) != -1:
        path = path[:cut]
        yield path
