"""Removing attempt directories, in an order in which whatever stays can still be recognised."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from perago.transfer.inventory import ATTEMPT_MARKER

LOCK_FILE = ".perago-lock"
# A directory has this before its name while it is not complete: not yet, or not any more.
NEW_PREFIX = ".new-"


def remove_directory(folder: Path) -> None:
    """Remove an attempt directory whose lock the caller holds; raises if any of it stays.

    Marker and lock go last, under the name of an incomplete directory: whenever this is killed,
    a sweep finds what is left and finishes it.
    """
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise NotADirectoryError(f"not a folder any more: {folder}")
    folder.chmod(0o700)
    for entry in list(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        elif entry.name not in {LOCK_FILE, ATTEMPT_MARKER}:
            entry.unlink()
    if not folder.name.startswith(NEW_PREFIX):
        folder = folder.rename(folder.with_name(f"{NEW_PREFIX}{folder.name}"))
    for name in (ATTEMPT_MARKER, LOCK_FILE):
        with suppress(FileNotFoundError):
            (folder / name).unlink()
    folder.rmdir()


def remove_tree(folder: Path) -> None:
    """Remove a folder, also one whose body made parts of it read-only; raises if any of it stays.

    Not ``shutil.rmtree``: that recurses, and a body may nest folders deeper than Python does.
    """
    problems: list[OSError] = []
    folders = [str(folder)]
    for inner in folders:  # grows while it is walked
        try:
            folders += _remove_files(inner)
        except OSError as error:
            problems.append(error)
    for inner in reversed(folders):
        try:
            os.rmdir(inner)  # noqa: PTH106  strings: a tree may have very many entries
        except OSError as error:
            problems.append(error)
    if os.path.lexists(folder):
        raise problems[0]


def _remove_files(folder: str) -> list[str]:
    """Remove what is not a folder; the folders. Links are removed, never followed."""
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise NotADirectoryError(f"not a folder any more: {folder}")
    os.chmod(folder, 0o700)  # noqa: PTH101
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                os.unlink(entry.path)  # noqa: PTH108
    return folders
