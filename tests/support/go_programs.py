"""Programs that tests run beside LakeFS, built from Go modules as LakeFS itself is."""

from __future__ import annotations

from dataclasses import replace

from perago.servers import lakefs
from perago.servers.toolchain.go_program import GoProgram

_ALTERNATIVE = "leave out the rows that need it"

# Of the same module as the server, so that both are of one release.
LAKECTL = replace(
    lakefs.program(),
    name="lakectl",
    package="./cmd/lakectl",
    alternative=_ALTERNATIVE,
    link_flags="-s -w",
    packages=None,
)
RCLONE = GoProgram(
    "rclone",
    "github.com/rclone/rclone",
    "1.75.1",
    ".",
    "h1:kIxQcoDLj2Gke/gMSHK7OnxhX1Gu1cJBLP1kJZoaFp0=",
    _ALTERNATIVE,
)
# An S3 server on a folder.
VERSITYGW = GoProgram(
    "versitygw",
    "github.com/versity/versitygw",
    "1.8.0",
    "./cmd/versitygw",
    "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc=",
    _ALTERNATIVE,
)
