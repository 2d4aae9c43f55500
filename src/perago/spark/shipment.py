"""Send a session what its executors lack, and know the same content again by its digest."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from perago.servers.toolchain.cache import Cache
from perago.spark.files import SparkFiles
from perago.spark.modules import module_files
from perago.spark.packages import INTERPRETER, INTERPRETER_SETTING, interpreter_file
from perago.spark.zips import zip_files

_ZIP = "perago_modules.zip"
_NO_FILES = SparkFiles()
# By which a file is taken to be unchanged.
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Content:
    """Files to send before a session's first Python function; one digest is one content."""

    digest: str
    # None for a server that has our packages and our modules.
    interpreter: Path | None
    modules: Mapping[str, Path]
    files: SparkFiles

    @property
    def is_empty(self) -> bool:
        return self.interpreter is None and self.files == _NO_FILES

    def send(self, session: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="perago-artifacts-") as folder, _kept_path():
            if self.interpreter is not None:
                bundle = Path(folder, _ZIP)
                bundle.write_bytes(self._zip)
                session.addArtifacts(str(self.interpreter), file=True)
                session.addArtifacts(str(bundle), pyfile=True)
                session.conf.set(INTERPRETER_SETTING, INTERPRETER)
            self.files.add_to(session)

    @cached_property
    def _zip(self) -> bytes:
        return zip_files(self.modules)


@contextmanager
def _kept_path() -> Iterator[None]:
    """Undo what pyspark does for a zip of modules: it comes first on this process's own path."""
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before


class Shipment:
    """What a worker's sessions send: Perago, the author's modules, and the files of the settings.

    It is looked at anew for each session, because a body imports modules and an author may replace
    files; of a file that has not changed since, the digest is remembered.
    """

    def __init__(
        self,
        targets: Sequence[str] = (),
        data: Sequence[str] = (),
        files: SparkFiles = _NO_FILES,
    ) -> None:
        """``targets`` and ``data`` are those of :func:`module_files`."""
        self._targets = targets
        self._data = data
        self._files = files
        self._interpreter: Path | None = None
        self._digests: dict[Path, tuple[_Stamp, str]] = {}
        self._last: Content | None = None

    def content(self, *, shares: bool) -> Content:
        """Return what to send now; ``shares`` says that the server has our packages and modules."""
        interpreter = None if shares else self._interpreter_file()
        modules = {} if shares else module_files(self._targets, self._data)
        digest = hashlib.sha256()
        for line in self._lines(interpreter, modules):
            digest.update(f"{line}\n".encode())
        found = Content(digest.hexdigest(), interpreter, modules, self._files)
        if self._last is None or self._last.digest != found.digest:
            self._last = found
        # Not the new one: this one may have its zip.
        return self._last

    def _interpreter_file(self) -> Path:
        # Which versions are installed is looked up once: that takes longer than all the rest.
        if self._interpreter is None or not self._interpreter.is_file():
            self._interpreter = interpreter_file(Cache.of_user())
        return self._interpreter

    def _lines(self, interpreter: Path | None, modules: Mapping[str, Path]) -> Iterator[str]:
        if interpreter is not None:
            yield f"{INTERPRETER_SETTING} {INTERPRETER} {self._digest(interpreter)}"
        for name, file in modules.items():
            yield f"module {name} {self._digest(file)}"
        for file_name in self._files.modules:
            yield f"py-file {Path(file_name).name} {self._digest(Path(file_name))}"
        for archive in self._files.archives:
            file_name, _, folder = archive.partition("#")
            yield f"archive {Path(file_name).name}#{folder} {self._digest(Path(file_name))}"

    def _digest(self, file: Path) -> str:
        status = file.stat()
        stamp = (status.st_size, status.st_mtime_ns, status.st_ino)
        known = self._digests.get(file)
        if known is None or known[0] != stamp:
            with file.open("rb") as stream:
                known = self._digests[file] = (
                    stamp,
                    hashlib.file_digest(stream, "sha256").hexdigest(),
                )
        return known[1]
