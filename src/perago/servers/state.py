"""Record the secrets, ports and processes of a stack in its data directory.

The record is one file, ``stack.json``, readable by its owner only. It is written before the first
server is started and after every start and stop, so that running servers can always be found and
ended.
"""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from perago.errors import SetupError
from perago.servers.endpoints import ConductorEndpoint, Endpoints, LakeFSEndpoint, SparkEndpoint
from perago.servers.lakefs import LakeFSSecrets
from perago.servers.process import ProcessId
from perago.servers.server import write_private

_FILE = "stack.json"
LOCK_FILE = "lock"


class Secrets(BaseModel):
    """The random secrets of a data directory, generated once."""

    model_config = ConfigDict(frozen=True)

    lakefs: LakeFSSecrets = Field(repr=False)
    spark_token: str = Field(repr=False)

    @classmethod
    def random(cls) -> Secrets:
        """Generate secrets. The key id has the form of AWS's, which some S3 clients require."""
        return cls(
            lakefs=LakeFSSecrets(
                access_key_id=f"AKIAJ{base64.b32encode(secrets.token_bytes(9)).decode()[:15]}",
                secret_access_key=secrets.token_urlsafe(30),
                encryption_key=secrets.token_hex(32),
                signing_key=secrets.token_hex(32),
            ),
            spark_token=secrets.token_urlsafe(32),
        )


class State(BaseModel):
    """The record of a stack."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    ephemeral: bool
    secrets: Secrets
    ports: dict[str, int]
    servers: dict[str, ProcessId] = Field(default_factory=dict)
    # All servers have been healthy once; until then another process is starting them.
    ready: bool = False
    # Set first by `perago dev down`, so that the foreground process knows why its servers end.
    stopping: bool = False

    @property
    def running(self) -> dict[str, ProcessId]:
        """The recorded processes that still run."""
        return {name: process for name, process in self.servers.items() if process.alive}

    @property
    def endpoints(self) -> Endpoints:
        """The addresses and credentials of the servers."""
        keys = self.secrets.lakefs
        spark = SparkEndpoint.at(self.ports["spark"], self.secrets.spark_token)
        return Endpoints(
            lakefs=LakeFSEndpoint.at(
                self.ports["lakefs"], keys.access_key_id, keys.secret_access_key
            ),
            conductor=ConductorEndpoint.at(self.ports["conductor"]),
            spark=spark if "spark" in self.servers else None,
        )

    def save(self, data_dir: Path) -> None:
        """Write the record atomically."""
        write_private(data_dir / _FILE, self.model_dump_json(indent=2))


def load(data_dir: Path) -> State | None:
    """Read the record of a data directory; None when no stack was ever started there."""
    try:
        return State.model_validate_json((data_dir / _FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise SetupError(
            f"this user may not read the record {data_dir / _FILE}",
            hint="Use another --data-dir, or be the user who started the stack.",
        ) from None
    except (OSError, ValueError):
        # Not chained: its text shows the values, which are secrets.
        raise SetupError(
            f"this version of Perago cannot read the record {data_dir / _FILE}",
            hint="Use another --data-dir, or move this one away.",
        ) from None


def claim(data_dir: Path) -> None:
    """Create the directory, private to its owner; refuse one that holds other files."""
    if data_dir.exists() and not data_dir.is_dir():
        raise SetupError(f"{data_dir} is not a folder", hint="Use another --data-dir.")
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    others = [path.name for path in data_dir.iterdir() if path.name != LOCK_FILE]
    if others and not (data_dir / _FILE).exists():
        raise SetupError(
            f"{data_dir} holds files that are not of a Perago stack, such as {min(others)}",
            hint="Set --data-dir to an empty folder, or to one that does not exist yet.",
        )
    data_dir.chmod(0o700)
