"""Addresses and credentials of LakeFS and Conductor. A secret is in no representation."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
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
    # How objects move: straight to LakeFS's store where that is offered, or through the gateway.
    transfer: Literal["auto", "gateway"] = "auto"

    def __post_init__(self) -> None:
        _check_address("LakeFS", self.endpoint, "LAKECTL_SERVER_ENDPOINT_URL")
        if self.s3_endpoint is not None:
            _check_address("S3 gateway's", self.s3_endpoint, "PERAGO_LAKEFS_S3_ENDPOINT")

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
        _check_address("Conductor", self.server_url, "CONDUCTOR_SERVER_URL")

    @property
    def api(self) -> str:
        """The base of the API, whether or not the setting ends in ``/api``."""
        return self.server_url.rstrip("/").removesuffix("/api") + "/api"


def plain_http_warning(url: str) -> str | None:
    """Return a warning if requests go to another machine without encryption."""
    parts = urlsplit(url)
    if parts.scheme != "http" or _is_loopback(parts.hostname or ""):
        return None
    return "plain http to another machine shows credentials and data to the network; use https"


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _check_address(server: str, url: str, setting: str) -> None:
    """Raise ``ConfigurationError`` if an address cannot be one of a server."""
    try:
        parts = urlsplit(url)
        has_password = "@" in parts.netloc
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        has_password, is_usable = "@" in url, False
    if has_password:
        # The address is not shown: its password would be in a log.
        raise ConfigurationError(
            f"the {server} endpoint must not hold a user or a password",
            hint=f"Set {setting} without them; the credentials have variables of their own.",
        )
    if not is_usable or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigurationError(
            f"the {server} endpoint must be an http(s) URL, not {url!r}",
            hint=f"Set {setting}, for example to https://server.example.com.",
        )
