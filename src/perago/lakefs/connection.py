"""How to reach a LakeFS server. The secret never appears in a representation."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic import SecretStr

from perago.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class LakeFSConnection:
    """Endpoint and credentials, from the worker's own configuration only."""

    endpoint: str
    access_key_id: str
    secret_access_key: SecretStr = field(repr=False)
    connect_timeout: float = 5.0
    read_timeout: float = 30.0
    # How long an outage is waited for by requests that may be repeated.
    patience: float = 60.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        if "@" in parts.netloc:
            # Not echoed: it would carry the password into a log.
            raise ConfigurationError(
                "the LakeFS endpoint must not hold a user or a password",
                hint="Set the LAKECTL_CREDENTIALS_… variables instead.",
            )
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ConfigurationError(
                f"the LakeFS endpoint must be an http(s) URL, not {self.endpoint!r}",
                hint="Set LAKECTL_SERVER_ENDPOINT_URL, for example to https://lakefs.example.com.",
            )

    @property
    def server(self) -> str:
        """Scheme, host and port; tools differ in whether they append ``/api/v1``."""
        return self.endpoint.rstrip("/").removesuffix("/api/v1")

    @property
    def api(self) -> str:
        return f"{self.server}/api/v1"

    @property
    def gateway(self) -> str:
        """The S3 gateway, which LakeFS serves on the same address."""
        return self.server
