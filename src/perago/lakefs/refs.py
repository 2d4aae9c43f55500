"""Requests about repositories, branches, tags and commits, which several modules make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from tenacity import Retrying

from perago.errors import LostReplyError
from perago.lakefs.api import (
    COMMIT,
    REF,
    REFS,
    REPOSITORIES,
    REPOSITORY,
    CommitMessage,
    LakeFSApi,
    RefMessage,
    at_path,
    commit_id,
    parsed,
)

RefKind = Literal["branches", "tags"]


def branch_path(repository: str, branch: str) -> str:
    """Return the address of a branch, where no tag or commit can be meant."""
    return at_path("repositories", repository, "branches", branch)


def ref_path(repository: str, ref: str) -> str:
    """Return the address of what a branch, a tag or a commit names."""
    return at_path("repositories", repository, "refs", ref)


def read_default_branch(api: LakeFSApi, repository: str, *, retrier: Retrying) -> str:
    """Read the name of a repository's default branch."""
    what, path = f"read repository {repository!r}", at_path("repositories", repository)
    return api.get(what, path, parsed(REPOSITORY), retrier=retrier).default_branch


def list_repositories(api: LakeFSApi, *, retrier: Callable[[], Retrying]) -> list[str]:
    """List every repository that the user can see."""
    listed = api.pages("list repositories", "/repositories", REPOSITORIES, retrier=retrier)
    return [item.id for item in listed]


def read_commit(api: LakeFSApi, repository: str, ref: str, *, retrier: Retrying) -> CommitMessage:
    """Read the commit that a full or short id, a branch or a tag names."""
    what = f"read commit {ref} of {repository!r}"
    path = at_path("repositories", repository, "commits", ref)
    return api.get(what, path, parsed(COMMIT), retrier=retrier)


def list_refs(
    api: LakeFSApi,
    repository: str,
    kind: RefKind,
    prefix: str = "",
    *,
    retrier: Callable[[], Retrying],
) -> Iterator[RefMessage]:
    """List the branches or the tags whose names begin with ``prefix``."""
    what, path = f"list {kind} of {repository!r}", at_path("repositories", repository, kind)
    return api.pages(what, path, REFS, {"prefix": prefix} if prefix else None, retrier=retrier)


def create_branch(api: LakeFSApi, repository: str, branch: str, source: str) -> None:
    """Create a branch that starts where ``source`` is; never repeated."""
    api.change_once(
        f"create branch {branch!r} of {repository!r}",
        "POST",
        at_path("repositories", repository, "branches"),
        commit_id,
        status=201,
        body={"name": branch, "source": source},
    )


def create_tag(
    api: LakeFSApi, repository: str, tag: str, commit: str, *, retrier: Retrying
) -> None:
    """Create a tag; raises ``ConflictError`` if there is one of that name."""
    api.change(
        f"create tag {tag!r} of {repository!r}",
        "POST",
        at_path("repositories", repository, "tags"),
        parsed(REF),
        status=201,
        body={"id": tag, "ref": commit},
        retrier=retrier,
    )


def assert_gone(
    api: LakeFSApi, deletion: str, repository: str, kind: RefKind, name: str, *, retrier: Retrying
) -> None:
    """Raise ``LostReplyError`` if a branch or a tag that was not found is listed.

    A licence counts as withdrawn from here on, and one 404 may be a proxy's.
    """
    what, path = f"list {kind} of {repository!r}", at_path("repositories", repository, kind)
    # The name itself sorts before all others that begin with it.
    fields = {"prefix": name, "amount": 1}
    page = api.get(what, path, parsed(REFS), fields, retrier=retrier)
    if any(found.id == name for found in page.results):
        raise LostReplyError(f"LakeFS could not {deletion}: it was not found, and is still there")
