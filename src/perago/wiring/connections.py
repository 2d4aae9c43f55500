"""Connections from settings, or one error that names everything that is missing."""

from __future__ import annotations

from perago.connections import Authorities, ConductorConnection, LakeFSConnection
from perago.errors import ConfigurationError
from perago.settings import Settings


def lakefs_connection(settings: Settings) -> LakeFSConnection:
    """Build the LakeFS connection; raise an error that names every missing setting."""
    endpoint, key = settings.lakefs_endpoint, settings.lakefs_access_key_id
    secret = settings.lakefs_secret_access_key
    if endpoint is None or key is None or secret is None:
        raise _missing(
            {
                "LAKECTL_SERVER_ENDPOINT_URL": endpoint,
                "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": key,
                "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": secret,
            }
        )
    bundle = settings.ca_bundle
    return LakeFSConnection(
        endpoint,
        key,
        secret,
        s3_endpoint=settings.lakefs_s3_endpoint,
        authorities=Authorities.read(bundle) if bundle else None,
        transfer=settings.transfer,
    )


def conductor_connection(settings: Settings) -> ConductorConnection:
    """Build the Conductor connection; raise an error that names the missing setting."""
    url = settings.conductor_server_url
    if url is None:
        raise _missing({"CONDUCTOR_SERVER_URL": url})
    return ConductorConnection(url, settings.conductor_auth_key, settings.conductor_auth_secret)


def _missing(values: dict[str, object]) -> ConfigurationError:
    names = (name for name, value in values.items() if value is None)
    return ConfigurationError(
        f"not set: {', '.join(names)}",
        hint='Set them in the environment; for the embedded servers: eval "$(perago dev env)".',
    )
