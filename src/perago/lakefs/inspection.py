"""List repositories and branches as people look for them: a bounded number, in order."""

from __future__ import annotations

from perago.connections import LakeFSConnection
from perago.lakefs.api import REFS, REPOSITORIES, LakeFSApi, at_path, parsed
from perago.names import ENTRIES_PER_PAGE, STAGING_PREFIX
from perago.protocol.workspace import BranchHead
from perago.retry import TRIES, retrying_times


class LakeFSInspection:
    """Lists; changes nothing."""

    def __init__(self, connection: LakeFSConnection, *, tries: int = TRIES) -> None:
        self._api = LakeFSApi(connection)
        self._tries = tries

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def repositories(self, amount: int) -> list[tuple[str, str]]:
        """List the first repositories, each with its default branch."""
        page = self._api.get(
            "list repositories",
            "/repositories",
            parsed(REPOSITORIES),
            {"amount": min(amount, ENTRIES_PER_PAGE)},
            retrier=retrying_times(self._tries),
        )
        return [(item.id, item.default_branch) for item in page.results]

    def branches(self, repository: str, amount: int) -> list[BranchHead]:
        """List the first branches that are not staging branches, of which there may be many."""
        found = self._listed(repository, amount, "")
        own = [head for head in found if not head.name.startswith(STAGING_PREFIX)]
        if len(own) < len(found):
            # "~" comes after every character of a branch's name.
            rest = self._listed(repository, amount, f"{STAGING_PREFIX}~")
            own = [head for head in own if head.name < STAGING_PREFIX] + rest
        return own[:amount]

    def _listed(self, repository: str, amount: int, after: str) -> list[BranchHead]:
        page = self._api.get(
            f"list branches of {repository!r}",
            f"{at_path('repositories', repository)}/branches",
            parsed(REFS),
            {"amount": min(amount, ENTRIES_PER_PAGE), "after": after},
            retrier=retrying_times(self._tries),
        )
        return [BranchHead(item.id, item.commit_id) for item in page.results]
