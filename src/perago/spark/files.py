"""Files that every session gets, named as spark-submit names them: ``--py-files``, ``--archives``.

Python files and zips can be imported by the body and by functions on Spark. An archive is unpacked
in the folder in which functions run, under the name behind its ``#``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perago.settings import Settings


@dataclass(frozen=True, slots=True)
class SparkFiles:
    """The files that a worker's settings name."""

    modules: tuple[str, ...] = ()
    # Each with the name of its folder: ``words.tar.gz#words``.
    archives: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> SparkFiles:
        return cls(settings.spark_py_file_names, settings.spark_archive_names)

    def make_importable(self) -> None:
        """Let this process import the modules; what is installed or lies beside the tasks wins."""
        for name in self.modules:
            place = str(Path(name).parent) if name.endswith(".py") else name
            if place not in sys.path:
                sys.path.append(place)

    def add_to(self, session: Any) -> None:
        """Send the files to a session's server."""
        if self.modules:
            session.addArtifacts(*self.modules, pyfile=True)
        if self.archives:
            session.addArtifacts(*self.archives, archive=True)
