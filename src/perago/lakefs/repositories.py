"""Repositories and branches as a person uses them: found by name, and created on request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter
from tenacity import Retrying

from perago.connections import LakeFSConnection
from perago.lakefs import refs
from perago.lakefs.api import COMMIT, REPOSITORY, LakeFSApi, LakeFSMessage, at_path, parsed
from perago.retry import TRIES, retrying_times


class _Storage(LakeFSMessage):
    blockstore_type: Annotated[str, StringConstraints(min_length=1)]
    default_namespace_prefix: str | None = None


class _StorageMessage(LakeFSMessage):
    """The part of the server's configuration that says where it keeps objects."""

    storage_config: _Storage


_STORAGE = TypeAdapter(_StorageMessage)


@dataclass(frozen=True, slots=True)
class BlockStore:
    """Where a server keeps objects: the kind of its store, and the default place for new data."""

    kind: str
    default_prefix: str | None


class LakeFSRepositories:
    """Lists, resolves and creates repositories and branches."""

    def __init__(self, connection: LakeFSConnection, *, tries: int = TRIES) -> None:
        """``tries`` is for reads; a change is one request."""
        self._api = LakeFSApi(connection)
        self._tries = tries

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _retrier(self) -> Retrying:
        return retrying_times(self._tries)

    def names(self) -> list[str]:
        """List every repository that the user can see."""
        return refs.list_repositories(self._api, retrier=self._retrier)

    def default_branch(self, repository: str) -> str:
        """Read the name of a repository's default branch."""
        return refs.read_default_branch(self._api, repository, retrier=self._retrier())

    def branches(self, repository: str) -> list[str]:
        """List the names of all branches."""
        listed = refs.list_refs(self._api, repository, "branches", retrier=self._retrier)
        return [item.id for item in listed]

    def resolve(self, repository: str, ref: str) -> str:
        """Return the full id of the commit that a branch, a tag or a short id names."""
        what = f"read {ref!r} of {repository!r}"
        path = at_path("repositories", repository, "commits", ref)
        return self._api.get(what, path, parsed(COMMIT), retrier=self._retrier()).id

    def block_store(self) -> BlockStore:
        """Read where the server keeps objects."""
        what = "read the server's configuration"
        found = self._api.get(what, "/config", parsed(_STORAGE), retrier=self._retrier())
        storage = found.storage_config
        return BlockStore(storage.blockstore_type, storage.default_namespace_prefix or None)

    def create(self, repository: str, storage_namespace: str, default_branch: str) -> None:
        """Create a repository whose objects lie below ``storage_namespace``."""
        self._api.change_once(
            f"create repository {repository!r}",
            "POST",
            "/repositories",
            parsed(REPOSITORY),
            status=201,
            body={
                "name": repository,
                "storage_namespace": storage_namespace,
                "default_branch": default_branch,
            },
        )

    def create_branch(self, repository: str, branch: str, source: str) -> None:
        """Create a branch that starts where ``source`` is."""
        refs.create_branch(self._api, repository, branch, source)
