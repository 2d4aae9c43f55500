"""Run the LakeFS server: an installed binary, or one built from its Go module."""

from __future__ import annotations

import base64
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from perago.errors import SetupError
from perago.servers.endpoints import LakeFSEndpoint
from perago.servers.loopback import LOOPBACK
from perago.servers.server import Command, Server, answers, environment_without, write_private
from perago.servers.toolchain.cache import Cache
from perago.servers.toolchain.checksums import expected_hashes
from perago.servers.toolchain.go_program import GoProgram
from perago.servers.watchdog import Watchdog

VERSION = "1.84.0"
_MODULE = "github.com/treeverse/lakefs"


@dataclass(frozen=True)
class LakeFSSecrets:
    """The keys with which LakeFS encrypts and signs, and its administrator's credentials."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    encryption_key: str = field(repr=False)
    signing_key: str = field(repr=False)


class LakeFS(Server):
    """LakeFS with its local key-value store and its local block store."""

    name = "lakefs"
    startup_seconds = 60.0

    def __init__(
        self,
        data_dir: Path,
        port: int,
        watchdog: Watchdog,
        *,
        secrets: LakeFSSecrets,
        max_batch_delay: str | None,
    ) -> None:
        super().__init__(data_dir, port, watchdog)
        self._secrets = secrets
        self._max_batch_delay = max_batch_delay

    @property
    def endpoint(self) -> LakeFSEndpoint:
        """The address and the credentials for clients."""
        keys = self._secrets
        return LakeFSEndpoint.at(self.port, keys.access_key_id, keys.secret_access_key)

    def prepare(self) -> Command:
        binary = find_or_build(Cache.of_user())
        config = self.home / "lakefs.json"
        write_private(config, json.dumps(self._settings(), indent=2))
        # Variables override the file.
        env = environment_without("LAKEFS_", "LAKECTL_")
        return Command([str(binary), "--config", str(config), "run"], env)

    def healthy(self) -> bool:
        return is_healthy(self.port, self.endpoint)

    def _settings(self) -> dict[str, object]:
        keys = self._secrets
        # `sync_writes` off: the kernel keeps the writes of a process that crashes, and a
        # development stack need not survive a power failure.
        kv = {"path": str(self.home / "kv"), "sync_writes": False}
        settings: dict[str, object] = {
            "listen_address": f"{LOOPBACK}:{self.port}",
            "database": {"type": "local", "local": kv},
            "blockstore": {
                "type": "local",
                "local": {"path": str(self.home / "block")},
                "signing": {"secret_key": keys.signing_key},
            },
            "auth": {"encrypt": {"secret_key": keys.encryption_key}},
            "installation": {
                "user_name": "admin",
                "access_key_id": keys.access_key_id,
                "secret_access_key": keys.secret_access_key,
            },
            "committed": {"local_cache": {"dir": str(self.home / "cache")}},
            "stats": {"enabled": False},
            "security": {"check_latest_version": False},
        }
        if self._max_batch_delay is not None:
            settings["graveler"] = {"max_batch_delay": self._max_batch_delay}
        return settings


def is_healthy(port: int, endpoint: LakeFSEndpoint) -> bool:
    """Whether this LakeFS, and no other server, answers on the port."""
    # The health page needs no credentials; a listing with them succeeds on this LakeFS only.
    user = f"{endpoint.access_key_id}:{endpoint.secret_access_key}".encode()
    headers = {"Authorization": f"Basic {base64.b64encode(user).decode()}"}
    return answers(port, "/_health") and answers(port, "/api/v1/repositories?amount=1", headers)


def find_or_build(cache: Cache) -> Path:
    """Return the binary of PERAGO_LAKEFS_BIN, else of PATH, else build it once into the cache."""
    if named := os.environ.get("PERAGO_LAKEFS_BIN"):
        if not os.access(named, os.X_OK):
            raise SetupError(
                f"PERAGO_LAKEFS_BIN names {named}, which cannot be run",
                hint="Set it to the path of a lakefs executable, or unset it.",
            )
        return Path(named).absolute()
    if on_path := shutil.which("lakefs"):
        return Path(on_path)
    return program().obtain(cache)


def program() -> GoProgram:
    """Describe how the server is built, from its module's sources as they were released."""
    (found,) = expected_hashes(f"lakefs-{VERSION}").values()
    return GoProgram(
        "lakefs",
        _MODULE,
        VERSION,
        "./cmd/lakefs",
        found,
        alternative=f"install lakefs {VERSION} and set PERAGO_LAKEFS_BIN to its path",
        link_flags=f"-s -w -X {_MODULE}/pkg/version.Version={VERSION}",
        packages=1449,
    )
