"""Refuse credentials that would be sent to an address of another source.

A folder that was checked out may hold a ``perago.toml`` or ``pyproject.toml`` of its own. If it
could name a server and the keys came from the user's environment, starting a command in that folder
would send the user's keys to that server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perago.settings.sources import Given


@dataclass(frozen=True, slots=True)
class Credentials:
    """Keys, the address they belong to, and the other settings that decide where they are sent."""

    server: str
    endpoint: str
    keys: tuple[str, ...]
    companions: tuple[str, ...] = ()


_ALL = (
    Credentials(
        "LakeFS",
        "lakefs_endpoint",
        ("lakefs_access_key_id", "lakefs_secret_access_key"),
        # Managed Spark gets the keys in its settings and gives them to its cluster; functions that
        # move a workspace bring them to the executors of an external Spark.
        ("lakefs_s3_endpoint", "ca_bundle", "spark_remote", "spark_master", "spark_properties"),
    ),
    Credentials(
        "Conductor", "conductor_server_url", ("conductor_auth_key", "conductor_auth_secret")
    ),
)


def mixed_sources(given: dict[str, Given]) -> list[str]:
    """Write a problem for each server whose address and keys come from different sources."""
    return [problem for credentials in _ALL for problem in _problems(credentials, given)]


def _problems(credentials: Credentials, given: dict[str, Given]) -> Iterator[str]:
    keys = [given[name] for name in credentials.keys if name in given]
    endpoint = given.get(credentials.endpoint)
    together = [*keys, endpoint] if endpoint is not None else keys
    if len({item.source for item in together}) > 1:
        yield (
            f"{credentials.server}'s address and keys come from different sources: "
            f"{', '.join(item.place for item in together)}; give all of them in one source"
        )
        return
    for name in credentials.companions:
        item = given.get(name)
        if item is not None and item.is_from_folder and keys and item.source != keys[0].source:
            yield (
                f"{item.place} would receive {credentials.server}'s keys, which come from another "
                f"source: {keys[0].place}; set it in the environment, or the keys in that file"
            )
