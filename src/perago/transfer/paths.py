"""Path rules: which keys can be local files, and which local files can be keys."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perago.errors import ProjectionError
from perago.names import listing_prefix
from perago.text import first_lines, quote_path
from perago.transfer.inventory import Projection, ProjectionEntry, is_action

_MAX_SEGMENT_BYTES = 255
_MAX_PATH_BYTES = 4095
_MAX_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class FileSystem:
    """Which names the local file system treats as equal."""

    folds_case: bool = False
    folds_unicode: bool = False

    @classmethod
    def probe(cls, folder: Path) -> FileSystem:
        """Test the file system of a folder with a file: it depends on how a volume is mounted."""
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
        """Return the form that is the same for all paths that are one file here."""
        folded = unicodedata.normalize("NFC", path) if self.folds_unicode else path
        return folded.casefold() if self.folds_case else folded


def check_projection(projection: Projection, folder: Path, system: FileSystem) -> None:
    """Raise one ``ProjectionError`` for the keys that cannot be files in ``folder``."""
    refuse_keys(_bad_keys(projection, folder, system))


def refuse_keys(bad: Iterable[tuple[str, str]]) -> None:
    """Raise one ``ProjectionError`` that counts the bad keys and names the first of them."""
    _refuse("object keys cannot be files here", bad)


def check_publishable(files: Iterable[str], folders: Iterable[str], prefix: str) -> None:
    """Raise one ``ProjectionError`` for the files and folders that cannot be objects."""
    names = (*files, *(f"{folder}/" for folder in folders))
    refuse_paths((path, why) for path in names for why in publish_problems(path, prefix))


def publish_problems(path: str, prefix: str) -> Iterator[str]:
    """Yield the reasons why one path cannot be published. A folder ends in a slash."""
    key = listing_prefix(prefix) + path
    if not path.endswith("/") and (why := local_path_problem(path) or _key_problem(key)):
        yield why
    # An empty folder is refused too: creating it is the mistake.
    if is_action(key):
        yield "a task must not write LakeFS actions"


def refuse_paths(bad: Iterable[tuple[str, str]]) -> None:
    """Raise one ``ProjectionError`` that counts the bad paths and names the first."""
    _refuse("local paths cannot be published", bad)


def _refuse(what: str, bad: Iterable[tuple[str, str]]) -> None:
    count, shown = first_lines(f"{quote_path(name)}: {why}" for name, why in bad)
    if count:
        raise ProjectionError(f"{count} {what}:\n{shown}")


def room_in(folder: Path) -> int:
    """Return how many bytes a path below a folder may have."""
    return _MAX_PATH_BYTES - len(os.fsencode(folder)) - 1


def local_path_problem(path: str, room: int = _MAX_PATH_BYTES) -> str | None:
    """Return why a relative path cannot be a local file, or None."""
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
    if len(encoded) <= _MAX_SEGMENT_BYTES <= room:
        return None
    if max(len(segment.encode()) for segment in segments) > _MAX_SEGMENT_BYTES:
        return f"a path segment of more than {_MAX_SEGMENT_BYTES} bytes"
    if len(encoded) > room:
        return "a path too long for this workspace root"
    return None


def _key_problem(key: str) -> str | None:
    """Return why LakeFS would refuse a key, or None; its gateway answers as if it had failed."""
    if len(key.encode()) > _MAX_KEY_BYTES:
        return f"a key of more than {_MAX_KEY_BYTES} bytes, the most that LakeFS takes"
    return None


def _bad_keys(
    projection: Projection, folder: Path, system: FileSystem
) -> Iterator[tuple[str, str]]:
    room = room_in(folder)
    names = _Names(system)
    files: list[tuple[str, str]] = []
    folders: list[tuple[str, str]] = []
    for kept, items in ((files, projection.files), (folders, projection.markers)):
        for path, item in items.items():
            if why := local_path_problem(path, room):
                yield item.key, why
            else:
                kept.append((path, item.key))
    # Files first, so that the key below is reported where a file and a folder have one path.
    for path, key in files:
        if why := names.add_file(path):
            yield key, why
    for path, key in files:
        if why := names.add_folder(path.rpartition("/")[0]):
            yield key, why
    for path, key in folders:
        if why := names.add_folder(path):
            yield key, why


class SortedNames:
    """Checks a listing in key order as ``check_projection`` does, without holding it in memory.

    After a file ``a`` all keys that begin with ``a`` follow directly, ``a-b`` and ``a/b`` alike.
    So only the files that the current path begins with are kept. For file systems on which
    different names are always different files.
    """

    def __init__(self, room: int, above: str | None = None) -> None:
        """Start a check; ``above`` is a file outside the listing with the path of its folder."""
        self._room = room
        self._files = [] if above is None else [above]

    def problem(self, entry: ProjectionEntry) -> str | None:
        """Return why the next entry cannot be a file or folder here, or None."""
        if why := local_path_problem(entry.path, self._room):
            return why
        name = f"{entry.path}/" if entry.is_marker else entry.path
        while self._files and not name.startswith(self._files[-1]):
            self._files.pop()
        above = next((f for f in reversed(self._files) if name.startswith(f"{f}/")), None)
        if not entry.is_marker:
            self._files.append(entry.path)
        return None if above is None else f"{quote_path(above)} is a file"


class _Names:
    """The names in use so far, as the file system distinguishes them."""

    def __init__(self, system: FileSystem) -> None:
        self._fold = system.fold
        self._files: dict[str, str] = {}
        # Each folder with its problem, so that everything below it gets the same reason.
        self._folders: dict[str, tuple[str, str | None]] = {}

    def add_file(self, path: str) -> str | None:
        other = self._files.setdefault(self._fold(path), path)
        return None if other == path else f"the file system takes it for {quote_path(other)}"

    def add_folder(self, path: str) -> str | None:
        """Add a folder and those above it; return why it cannot exist, or None."""
        fresh: list[str] = []
        why = None
        while path:
            folded = self._fold(path)
            if folded in self._files:
                why = f"{quote_path(self._files[folded])} is a file"
                break
            if folded in self._folders:
                other, why = self._folders[folded]
                if other != path:
                    # The scan would find its files under the other spelling.
                    why = (
                        f"the file system takes its folder {quote_path(path)} for "
                        f"{quote_path(other)}"
                    )
                break
            fresh.append(path)
            path = path.rpartition("/")[0]
        self._folders.update({self._fold(folder): (folder, why) for folder in fresh})
        return why
