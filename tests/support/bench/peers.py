"""The peers' programs, obtained before anything is measured."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perago.connections import LakeFSConnection
from perago.errors import PeragoError
from support.bench.peer_package import telling_line
from support.bench.rounds import PeerError


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer's program or, where it could not be had, the reason."""

    found: Path | None = None
    reason: str = ""

    @property
    def program(self) -> str:
        """The path; raises ``PeerError`` where there is none, which leaves the peer out."""
        if self.found is None:
            raise PeerError(self.reason)
        return str(self.found)


def look_for(obtain: Callable[[], Path]) -> Peer:
    """Obtain a program; what keeps it from being had goes into the report."""
    try:
        return Peer(obtain())
    except (PeragoError, PeerError) as error:
        return Peer(None, str(error))


def lakefs_variables(connection: LakeFSConnection) -> dict[str, str]:
    """Where LakeFS is, as lakectl and both products read it."""
    return {
        "LAKECTL_SERVER_ENDPOINT_URL": connection.endpoint,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": connection.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": (connection.secret_access_key.get_secret_value()),
    }


def run(command: Sequence[str], env: Mapping[str, str], seconds: float) -> None:
    """Run a peer's command to its end; ``PeerError`` if it fails or takes too long."""
    try:
        ran = subprocess.run(
            command, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"{_named(command)} was not done after {seconds:.0f} s") from None
    if ran.returncode != 0:
        told = telling_line((ran.stderr or ran.stdout).decode(errors="replace"))
        raise PeerError(f"{_named(command)} failed: {told}")


def _named(command: Sequence[str]) -> str:
    """The command without its options and the folders of this machine."""
    return " ".join([Path(command[0]).name, *filter(str.isalpha, command[1:])])
