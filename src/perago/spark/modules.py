"""Find the modules that executors get: Perago's own, and the author's.

They are sent as a zip of Python files, and of the data files that the worker's settings declare. A
folder of tasks may be a checkout with keys in it, so nothing else is sent.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from types import ModuleType

# Files that hold keys and passwords, by the names that tools give them.
_KEYS = (
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.asc"),
    *("id_*", "*.env", "env", "credentials*", "*secret*", "*password*", "*.token", "lakectl.y*ml"),
)
_NOT_THE_AUTHOR_S = {"perago", "__main__", "__mp_main__"}
_MOST_FILES_READ = 4096
_PARSE_TRIES = 9


def module_files(targets: Sequence[str], data: Sequence[str] = ()) -> dict[str, Path]:
    """Return the files to send, by their names relative to the folder that holds the package.

    ``targets`` are the modules that a worker was started with; ``data`` are patterns of other files
    to send.
    """
    package = Path(__file__).absolute().parents[1]
    found = {}
    for place in [package, *author_modules(targets)]:
        for file in _files(place):
            name = file.relative_to(place.parent).as_posix()
            if is_sent(name, data):
                found[name] = file
    return found


def author_modules(targets: Sequence[str]) -> list[Path]:
    """Find the files and package folders of the author's tasks.

    That is every module named by a target, every loaded module that is not installed, because a
    task's module usually imports the modules next to it, and what these import in their functions.
    """
    named = {target.partition(":")[0].partition(".")[0] for target in targets}
    found = {
        place
        for name, module in list(sys.modules.items())
        if "." not in name and name not in _NOT_THE_AUTHOR_S
        if (place := _place(module)) is not None
        if name in named or not _is_installed(place)
    }
    return sorted(found | _imported_later(found))


def _place(module: ModuleType) -> Path | None:
    return _place_of(getattr(module, "__file__", None))


def _place_of(file: str | None) -> Path | None:
    if file is None or not file.endswith(".py"):
        return None
    path = Path(os.path.abspath(file))  # noqa: PTH100  ten times as fast, for hundreds of modules
    return path.parent if path.name == "__init__.py" else path


@cache
def _installation() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({f"{sysconfig.get_path(name)}{os.sep}" for name in names})


def _is_installed(place: Path) -> bool:
    return str(place).startswith(_installation())


def _imported_later(places: set[Path]) -> set[Path]:
    """Find what the code of these modules imports, loaded or not, and is not installed."""
    found: set[Path] = set()
    waiting = [place for place in places if not _is_installed(place)]
    while waiting:
        for file in _files(waiting.pop()):
            for name in _imports_of(file):
                place = _importable(name)
                if place is not None and place not in places | found:
                    found.add(place)
                    waiting.append(place)
    return found


def _imports_of(file: Path) -> frozenset[str]:
    if file.suffix != ".py":
        return frozenset()
    with suppress(OSError):
        status = file.stat()
        return _read_imports(file, status.st_size, status.st_mtime_ns)
    return frozenset()


@lru_cache(_MOST_FILES_READ)
def _read_imports(file: Path, _size: int, _changed: int) -> frozenset[str]:
    """Return the first names of all modules that a file imports, wherever in its text."""
    try:
        tree = _parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return frozenset(names) - sys.stdlib_module_names - _NOT_THE_AUTHOR_S


def _parse(text: bytes) -> ast.Module:
    """Parse a file, also while another thread parses.

    CPython counts the depth of the trees that all threads build in one place. A thread that was
    interrupted by another one's may find the count changed, and raises ``SystemError``.
    """
    for _ in range(_PARSE_TRIES):
        with suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


def _importable(name: str) -> Path | None:
    """Find a module that is not installed, without importing it."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # of a module without a spec, or of a finder
        return None
    place = _place_of(found.origin if found is not None else None)
    return place if place is not None and not _is_installed(place) else None


def _files(place: Path) -> Iterator[Path]:
    """Yield the regular files of a module or package; links are neither sent nor followed."""
    if place.is_file():
        yield place
        return
    found: list[os.DirEntry[str]] = []
    with suppress(OSError), os.scandir(place) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.is_file(follow_symlinks=False):
            yield Path(entry.path)
        elif entry.is_dir(follow_symlinks=False) and not _is_hidden(entry.name):
            yield from _files(Path(entry.path))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def is_sent(name: str, data: Sequence[str]) -> bool:
    """Whether a file goes to executors: Python, or declared data that is neither hidden nor a key.

    ``name`` is relative to the folder that holds the package.
    """
    path = PurePosixPath(name)
    if any(_is_hidden(part) for part in path.parts):
        return False
    if path.suffix == ".py":
        return True
    if any(fnmatchcase(path.name.lower(), pattern) for pattern in _KEYS):
        return False
    return any(fnmatchcase(name, pattern) for pattern in data)
