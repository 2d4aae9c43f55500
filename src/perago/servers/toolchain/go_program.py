"""Build a command of a Go module from sources whose hash is known."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from pathlib import Path

from perago.progress import shown
from perago.servers.toolchain import golang, tool
from perago.servers.toolchain.cache import Cache
from perago.servers.toolchain.checksums import verify_module

_DOWNLOAD_SECONDS = 900.0
_BUILD_SECONDS = 3000.0


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A command of a Go module."""

    name: str
    module: str
    version: str
    package: str
    # Of the module's sources. Its go.sum has those of every module that it uses, which Go compares.
    hash: str
    # Completes "or …" for who cannot build it.
    alternative: str
    link_flags: str = "-s -w"
    # `go list -deps`: how many lines `go build -v` prints when nothing is built yet.
    packages: int | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def obtain(self, cache: Cache | None = None) -> Path:
        """Return the program, built into the cache the first time."""
        # With the platform in its name: machines may share a home folder.
        target = f"{self.name}-{self.version}-{platform.system()}-{platform.machine()}".lower()
        return (cache or Cache.of_user()).obtain(target, self.build) / self.name

    def build(self, directory: Path) -> None:
        """Fetch and compare the sources, and build them into a directory."""
        go = golang.find()
        log = directory / "go.log"
        module = f"{self.module}@v{self.version}"
        fetching = f"fetch the sources of {self}"
        with shown(fetching, 1, "packages"):
            described = tool.run(
                [str(go.executable), "mod", "download", "-json", module],
                what=fetching,
                cwd=directory,
                log=log,
                seconds=_DOWNLOAD_SECONDS,
                env=go.env,
                alternative=self.alternative,
            )
        downloaded = json.loads(described)
        verify_module(module, downloaded.get("Sum"), self.hash, self.alternative)
        command = [str(go.executable), "build", "-v", "-trimpath", "-ldflags", self.link_flags]
        building = f"build {self} (once, some minutes)"
        with shown(building, self.packages, "packages") as advance:
            tool.run(
                [*command, "-o", str(directory / self.name), self.package],
                what=f"build {self}",
                # The module's own folder, so that its go.mod and go.sum (and `replace`) apply.
                cwd=Path(downloaded["Dir"]),
                log=log,
                seconds=_BUILD_SECONDS,
                env=go.env,
                on_tick=lambda: advance(log.read_bytes().count(b"\n")),
                alternative=self.alternative,
            )
        log.unlink()
        log.with_suffix(".out").unlink()
