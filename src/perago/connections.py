"""How to reach a LakeFS server. The secret never appears in a representation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from perago.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Authorities:
    """The certificates to trust, as the file that was named and as its text."""

    file: Path
    # Clients on other machines, which do not have the file, are given the text.
    pem: str = field(repr=False)

    @classmethod
    def read(cls, file: Path) -> Authorities:
        try:
            pem = file.read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise ConfigurationError(
                f"PERAGO_CA_BUNDLE names {file}, which cannot be read: {error.strerror}"
            ) from error
        if "-----BEGIN CERTIFICATE-----" not in pem:
            raise ConfigurationError(
                f"PERAGO_CA_BUNDLE names {file}, which holds no certificate",
                hint="Name a PEM file, which has lines with BEGIN CERTIFICATE.",
            )
        return cls(file, pem)


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
    # The S3 gateway, where it has an address of its own.
    s3_endpoint: str | None = None
    # None: those that every client trusts by itself.
    authorities: Authorities | None = None

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
        """The S3 gateway, which LakeFS serves on the same address unless told otherwise."""
        return self.s3_endpoint.rstrip("/") if self.s3_endpoint else self.server


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
