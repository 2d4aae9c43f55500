"""Ship Perago and the author's modules to executors that do not have them.

A session sends two Connect artifacts:

- an *archive* of installed packages. Some of them are compiled (obstore, pydantic's core), which
  Python cannot import from a zip, so they are unpacked on the executor. The archive also holds a
  ``bin/python``: a script that starts the cluster's own interpreter with these packages on its
  path. It is built once per set of versions and kept in the cache.
- a *zip of modules*: Perago's own and the author's, which change too often to be cached.

The cluster needs a Python of the same minor version on the same kind of machine, with what
pyspark itself needs there (pandas, pyarrow).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import platform
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from packaging.requirements import Requirement

from perago.servers.toolchain.cache import Cache

# What `import perago` and the functions of a transfer need; executors use nothing else.
_ROOTS = ("pydantic", "lakefs-sdk", "obstore", "urllib3", "tenacity", "psutil")
_FOLDER = "perago_packages"
_ARCHIVE = "packages.tar.gz"
_INTERPRETER = """#!/bin/sh
# Spark starts this script instead of the cluster's Python, and it executes that Python.
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$here/lib"
export PYTHONPATH
exec "${PYSPARK_PYTHON:-python3}" "$@"
"""

# Set for a session, it replaces the interpreter in every Python function of that session.
INTERPRETER_SETTING = "spark.sql.execution.pyspark.python"
INTERPRETER = f"{_FOLDER}/bin/python"


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Files to add to a session before its first Python function."""

    archive: Path
    modules: Path

    @property
    def archive_uri(self) -> str:
        """The archive with the folder it is unpacked to, as Spark writes both."""
        return f"{self.archive}#{_FOLDER}"


def build_artifacts(targets: Sequence[str], folder: Path) -> Artifacts:
    """Pack what executors lack; ``targets`` are the modules that a worker was started with."""
    modules = folder / "perago_modules.zip"
    _zip_modules(author_modules(targets), modules)
    return Artifacts(_packages(Cache.of_user()), modules)


def author_modules(targets: Sequence[str]) -> list[Path]:
    """Find the files and package folders that the author's tasks were loaded from.

    That is every module named by a target, and every loaded module that is not installed: a task's
    module usually imports the modules next to it.
    """
    named = {target.partition(":")[0].partition(".")[0] for target in targets}
    found = {
        place
        for name, module in list(sys.modules.items())
        if "." not in name and name not in {"perago", "__main__", "__mp_main__"}
        if (place := _place(module)) is not None
        if name in named or not _is_installed(place)
    }
    return sorted(found)


def _place(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py"):
        return None
    path = Path(file).absolute()
    return path.parent if path.name == "__init__.py" else path


def _is_installed(place: Path) -> bool:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    homes = {Path(sysconfig.get_path(name)) for name in names}
    return any(place.is_relative_to(home) for home in homes)


def _zip_modules(places: Iterable[Path], target: Path) -> None:
    package = Path(__file__).absolute().parents[1]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as bundle:
        for place in [package, *places]:
            for file in _sources(place):
                bundle.write(file, file.relative_to(place.parent))


def _sources(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    for file in sorted(place.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file


def _packages(cache: Cache) -> Path:
    distributions = {name: importlib.metadata.distribution(name) for name in _closure(_ROOTS)}
    facts = [f"{name}=={found.version}" for name, found in sorted(distributions.items())]
    facts += [_INTERPRETER, platform.machine(), platform.system(), sysconfig.get_python_version()]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]

    def make(folder: Path) -> None:
        with tarfile.open(folder / _ARCHIVE, "w:gz", compresslevel=6) as archive:
            _add_interpreter(archive)
            for distribution in distributions.values():
                _add_distribution(archive, distribution)

    return cache.obtain(f"spark-packages-{key}", make) / _ARCHIVE


def _closure(roots: Iterable[str]) -> set[str]:
    """Collect the distributions and everything they require on this interpreter."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        for text in importlib.metadata.requires(name) or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


def _add_interpreter(archive: tarfile.TarFile) -> None:
    info = tarfile.TarInfo("bin/python")
    content = _INTERPRETER.encode()
    info.size, info.mode = len(content), 0o755
    archive.addfile(info, io.BytesIO(content))


def _add_distribution(
    archive: tarfile.TarFile, distribution: importlib.metadata.Distribution
) -> None:
    for file in distribution.files or []:
        # Scripts are outside (`../../bin`), and the executor's Python compiles modules itself.
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        source = Path(str(file.locate()))
        if source.is_file():
            archive.add(source, f"lib/{file.as_posix()}", recursive=False)
