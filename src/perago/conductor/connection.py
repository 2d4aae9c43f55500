"""How to reach a Conductor server."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic import SecretStr

from perago.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ConductorConnection:
    """Server and, where it asks for them, credentials."""

    server_url: str
    auth_key: str | None = None
    auth_secret: SecretStr | None = field(default=None, repr=False)
    connect_timeout: float = 5.0
    read_timeout: float = 20.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.server_url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ConfigurationError(
                f"the Conductor server must be an http(s) URL, not {self.server_url!r}",
                hint="Set CONDUCTOR_SERVER_URL, for example to https://conductor.example.com/api.",
            )

    @property
    def api(self) -> str:
        """The API's base, whether or not the setting ends in ``/api``."""
        return self.server_url.rstrip("/").removesuffix("/api") + "/api"
