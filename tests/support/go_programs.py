"""Programs that tests run beside LakeFS, built from Go modules as LakeFS itself is."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from pathlib import Path

from perago.errors import SetupError
from perago.progress import note
from perago.servers import lakefs
from perago.servers.toolchain import golang, tool
from perago.servers.toolchain.cache import Cache
from perago.servers.toolchain.checksums import expected_hashes

_DOWNLOAD_SECONDS = 900.0
_BUILD_SECONDS = 3000.0


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A command of a Go module, with the hash that the module's sources have."""

    name: str
    module: str
    version: str
    package: str
    hash: str

    @property
    def source(self) -> str:
        return f"{self.module}@v{self.version}"

    def obtain(self, cache: Cache | None = None) -> Path:
        """The program, built into the cache of the servers the first time; minutes, then."""
        target = f"{self.name}-{self.version}-{platform.system()}-{platform.machine()}".lower()
        return (cache or Cache.of_user()).obtain(target, self._build) / self.name

    def _build(self, directory: Path) -> None:
        go = golang.find()
        what, log = f"{self.name} {self.version}", directory / "go.log"
        alternative = "leave out the rows that need it"
        note(f"build {what} (once, some minutes) …")
        described = tool.run(
            [str(go.executable), "mod", "download", "-json", self.source],
            what=f"fetch the sources of {what}",
            cwd=directory,
            log=log,
            seconds=_DOWNLOAD_SECONDS,
            env=go.env,
            alternative=alternative,
        )
        downloaded = json.loads(described)
        if downloaded.get("Sum") != self.hash:
            raise SetupError(
                f"the sources of {what} have the hash {downloaded.get('Sum')}, not {self.hash}",
                hint="Check GOPROXY and the network, then try again.",
            )
        # In the module's own folder, so that its go.mod and go.sum apply.
        command = [str(go.executable), "build", "-trimpath", "-ldflags", "-s -w"]
        tool.run(
            [*command, "-o", str(directory / self.name), self.package],
            what=f"build {what}",
            cwd=Path(downloaded["Dir"]),
            log=log,
            seconds=_BUILD_SECONDS,
            env=go.env,
            alternative=alternative,
        )
        log.unlink()
        log.with_suffix(".out").unlink()


def _lakefs_hash() -> str:
    (found,) = expected_hashes(f"lakefs-{lakefs.VERSION}").values()
    return found


# Of the same module as the server, so that both are of one release.
LAKECTL = GoProgram(
    "lakectl", "github.com/treeverse/lakefs", lakefs.VERSION, "./cmd/lakectl", _lakefs_hash()
)
RCLONE = GoProgram(
    "rclone",
    "github.com/rclone/rclone",
    "1.75.1",
    ".",
    "h1:kIxQcoDLj2Gke/gMSHK7OnxhX1Gu1cJBLP1kJZoaFp0=",
)
# An S3 server on a folder.
VERSITYGW = GoProgram(
    "versitygw",
    "github.com/versity/versitygw",
    "1.8.0",
    "./cmd/versitygw",
    "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc=",
)
