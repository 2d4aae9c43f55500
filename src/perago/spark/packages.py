"""Pack the installed packages that Perago needs on executors that do not have them.

Some of them are compiled (obstore, pydantic's core), which Python cannot import from a zip: they
must be unpacked on the executor. Spark unpacks an archive for each session, on the driver and on
every executor, which takes longer than all else that a session does at its start. So they are sent
as a plain file, which Spark copies and makes executable: a script that is set as the session's
interpreter, followed by a zip. The script unpacks the zip when an executor first starts it, beside
the folders of the sessions, and executes the cluster's own Python with the packages on its path.

The cluster needs a Python of the same minor version on the same kind of machine, with what
pyspark itself needs there (pandas, pyarrow).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

from perago.servers.toolchain.cache import Cache
from perago.spark.zips import zip_files

# What `import perago` and the functions of a transfer need; executors use nothing else.
_ROOTS = ("pydantic", "httpcore", "obstore", "tenacity", "psutil")
_NAME = "perago_python"
# Many processes of an executor may start at the same moment: the one that renames first wins.
_UNPACK = """
import os, shutil, sys, tempfile, zipfile
source, target = sys.argv[1:]
folder = tempfile.mkdtemp(dir=os.path.dirname(target))
try:
    zipfile.ZipFile(source).extractall(folder)
    os.rename(folder, target)
except BaseException:
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.isdir(target):
        raise
"""
_SCRIPT = """#!/bin/sh
# Spark starts this file in place of the cluster's Python. A zip of packages follows the text.
here=$(cd "$(dirname "$0")" && pwd)
python="${PYSPARK_PYTHON:-python3}"
# Around the folder of this session is the executor's, which its sessions share.
folder=$(dirname "$here")
[ -w "$folder" ] || folder="$here"
packages="$folder/perago_packages-KEY"
[ -d "$packages" ] || "$python" -IS -c 'UNPACK' "$here/NAME" "$packages" || exit 1
PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$packages"
export PYTHONPATH
exec "$python" "$@"
"""

# Set for a session, it replaces the interpreter in every Python function of that session.
INTERPRETER_SETTING = "spark.sql.execution.pyspark.python"
# Relative to the folder of the session, in which functions run.
INTERPRETER = f"./{_NAME}"


def interpreter_file(cache: Cache) -> Path:
    """Return the script with its packages; it is made once per set of versions."""
    distributions = {name: importlib.metadata.distribution(name) for name in closure(_ROOTS)}
    facts = [f"{name}=={found.version}" for name, found in sorted(distributions.items())]
    facts += [_SCRIPT, _UNPACK]
    facts += [platform.machine(), platform.system(), sysconfig.get_python_version()]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]

    def make(folder: Path) -> None:
        packed = zip_files(dict(_files(distributions.values())))
        script = _SCRIPT.replace("UNPACK", _UNPACK).replace("NAME", _NAME)
        script = script.replace("KEY", hashlib.sha256(packed).hexdigest()[:16])
        (folder / _NAME).write_bytes(script.encode() + packed)

    return cache.obtain(f"spark-python-{key}", make) / _NAME


def closure(roots: Iterable[str]) -> set[str]:
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


def _files(
    distributions: Iterable[importlib.metadata.Distribution],
) -> Iterator[tuple[str, Path]]:
    for distribution in distributions:
        for file in distribution.files or []:
            # Scripts are outside (`../../bin`), and the executor's Python compiles modules itself.
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            source = Path(str(file.locate()))
            if source.is_file():
                yield file.as_posix(), source
