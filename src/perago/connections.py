"""Addresses and credentials of LakeFS and Conductor. A secret is in no representation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from perago.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Authorities:
    """The certificates to trust: the file that was named, and its text."""

    file: Path
    # For clients on other machines, which do not have the file.
    pem: str = field(repr=False)

    @classmethod
    def read(cls, file: Path) -> Authorities:
        """Read a PEM file; raises ``ConfigurationError`` if it holds no certificate."""
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
    """Endpoint and credentials of LakeFS, from the worker's own configuration only."""

    endpoint: str
    access_key_id: str
    secret_access_key: SecretStr = field(repr=False)
    connect_timeout: float = 5.0
    read_timeout: float = 30.0
    # For how long requests for objects, all idempotent, are retried during an outage.
    retry_seconds: float = 60.0
    # The S3 gateway, if its address is not the server's.
    s3_endpoint: str | None = None
    # None: the certificates that each client trusts by default.
    authorities: Authorities | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        if "@" in parts.netloc:
            # The endpoint is not shown: its password would be in a log.
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
        """The endpoint without ``/api/v1``, which some tools append and others do not."""
        return self.endpoint.rstrip("/").removesuffix("/api/v1")

    @property
    def api(self) -> str:
        return f"{self.server}/api/v1"

    @property
    def gateway(self) -> str:
        """The address of the S3 gateway: the server's, unless another one is set."""
        return self.s3_endpoint.rstrip("/") if self.s3_endpoint else self.server


@dataclass(frozen=True, slots=True)
class ConductorConnection:
    """Server and, if it needs them, credentials of Conductor."""

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
        """The base of the API, whether or not the setting ends in ``/api``."""
        return self.server_url.rstrip("/").removesuffix("/api") + "/api"
