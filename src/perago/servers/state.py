"""What a data directory remembers: secrets, ports and the processes that run on it.

One file, ``stack.json``, readable by its owner only. It is written before the first server is
started and again after every start and stop, so that what runs can always be found and ended.
"""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perago.errors import SetupError
from perago.servers.endpoints import ConductorEndpoint, Endpoints, LakeFSEndpoint, SparkEndpoint
from perago.servers.lakefs import LakeFSSecrets
from perago.servers.process import ProcessId
from perago.servers.server import write_private

_FILE = "stack.json"
LOCK_FILE = "lock"


class Secrets(BaseModel):
    """Random, made once for a data directory."""

    model_config = ConfigDict(frozen=True)

    lakefs: LakeFSSecrets = Field(repr=False)
    spark_token: str = Field(repr=False)

    @classmethod
    def random(cls) -> Secrets:
        """New secrets. The key id looks like an AWS one, which some S3 clients insist on."""
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
    # All servers have been healthy once; until then another process is about to start them.
    ready: bool = False
    # Set by `perago dev down` first, so that whoever runs the stack knows why its servers end.
    stopping: bool = False

    @property
    def running(self) -> dict[str, ProcessId]:
        """The recorded processes that still live."""
        return {name: process for name, process in self.servers.items() if process.alive}

    @property
    def endpoints(self) -> Endpoints:
        """Where the servers are reached."""
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
        """Write the record, whole or not at all."""
        write_private(data_dir / _FILE, self.model_dump_json(indent=2))


def load(data_dir: Path) -> State | None:
    """The record of a data directory; None when no stack was ever started there."""
    try:
        text = (data_dir / _FILE).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return State.model_validate_json(text)
    except ValidationError:
        # Its text would show the values, which are secrets: it must not even be chained.
        raise SetupError(
            f"{data_dir / _FILE} is not a record this version of Perago can read",
            hint="Use another --data-dir, or move this one away.",
        ) from None


def claim(data_dir: Path) -> None:
    """Make the directory, private to its owner; refuse one that holds somebody's files."""
    if data_dir.exists() and not data_dir.is_dir():
        raise SetupError(f"{data_dir} is not a folder", hint="Name another --data-dir.")
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    strangers = [path.name for path in data_dir.iterdir() if path.name != LOCK_FILE]
    if strangers and not (data_dir / _FILE).exists():
        raise SetupError(
            f"{data_dir} holds files that are not of a Perago stack, such as {min(strangers)}",
            hint="Name an empty folder or one that does not exist yet by --data-dir.",
        )
    data_dir.chmod(0o700)
