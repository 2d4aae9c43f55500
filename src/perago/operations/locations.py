"""Name a place in LakeFS on a command line: ``REPOSITORY[@REF][/PREFIX]``.

A name that does not exist is answered with the names that do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from perago.connections import LakeFSConnection
from perago.errors import ConfigurationError, NotFoundError
from perago.lakefs.repositories import LakeFSRepositories
from perago.names import STAGING_PREFIX
from perago.tasks.spec import WorkspaceSpec, normalize_prefix

_LOCATION = re.compile(
    r"(?P<repository>[^@/]+)(?:@(?P<ref>[^@/]+))?(?:/(?P<prefix>.*))?", re.DOTALL
)
_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}", re.ASCII)
_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)
_SYNTAX = (
    "Write REPOSITORY, REPOSITORY@BRANCH or REPOSITORY@BRANCH/PREFIX, such as shop@main/sales."
)
_DEFAULT_BRANCH = "main"
_MOST_NAMES = 10


@dataclass(frozen=True, slots=True)
class Location:
    """A folder of a repository at a ref; without a ref, at the default branch."""

    repository: str
    ref: str | None = None
    prefix: str = ""

    def __str__(self) -> str:
        ref = f"@{self.ref}" if self.ref else ""
        return f"{self.repository}{ref}{f'/{self.prefix}' if self.prefix else ''}"


def parse_location(text: str) -> Location:
    """Read a location; raises ``ConfigurationError`` that says how one is written."""
    found = _LOCATION.fullmatch(text)
    if text.startswith("lakefs:") or found is None:
        raise ConfigurationError(f"{text!r} is not a place in LakeFS", hint=_SYNTAX)
    if _REPOSITORY.fullmatch(found["repository"]) is None:
        raise ConfigurationError(
            f"{found['repository']!r} cannot be the name of a repository: it has 3 to 63 "
            "lower-case letters, digits and hyphens, and begins with a letter or a digit",
            hint=_SYNTAX,
        )
    given = found["prefix"] or ""
    # The rules of a task's own prefix: what is put here, a task must be able to take.
    problem = next(WorkspaceSpec(prefix=given).problems(), None) if given else None
    if problem is not None:
        raise ConfigurationError(problem.replace("WorkspaceSpec.prefix", "prefix"), hint=_SYNTAX)
    return Location(found["repository"], found["ref"], normalize_prefix(given))


@dataclass(frozen=True, slots=True)
class PinnedLocation:
    """A location at an immutable commit."""

    location: Location
    commit: str


def pin(repositories: LakeFSRepositories, location: Location) -> PinnedLocation:
    """Resolve a location to the commit that it names now, with its ref filled in."""
    named = with_branch(repositories, location)
    assert named.ref is not None  # noqa: S101  narrows the type
    try:
        return PinnedLocation(named, repositories.resolve(named.repository, named.ref))
    except NotFoundError:
        raise _unknown_ref(repositories, named) from None


@contextmanager
def naming_what_is_there(
    connection: LakeFSConnection, repository: str, branch: str | None = None
) -> Iterator[None]:
    """Within the block, an error about a missing repository or branch names those there are."""
    try:
        yield
    except NotFoundError:
        with closing(LakeFSRepositories(connection)) as repositories:
            pin(repositories, Location(repository, branch))
        raise


def with_branch(repositories: LakeFSRepositories, location: Location) -> Location:
    """Fill in the default branch; raises ``NotFoundError`` for an unknown repository."""
    try:
        branch = repositories.default_branch(location.repository)
    except NotFoundError:
        raise _unknown_repository(repositories, location.repository) from None
    return Location(location.repository, location.ref or branch, location.prefix)


def create_missing(
    repositories: LakeFSRepositories, location: Location, storage: str | None
) -> list[str]:
    """Create the repository and the branch of a location where they are missing.

    A new branch starts from the default branch. Returns what was created.
    """
    created: list[str] = []
    wanted = location.ref
    if wanted is not None and _BRANCH.fullmatch(wanted) is None:
        raise ConfigurationError(
            f"{wanted!r} cannot be the name of a branch",
            hint="Use letters, digits, '_' and '-', and do not begin with '-'.",
        )
    try:
        default = repositories.default_branch(location.repository)
    except NotFoundError:
        default = wanted or _DEFAULT_BRANCH
        namespace = storage or _namespace(repositories, location.repository)
        repositories.create(location.repository, namespace, default)
        created.append(f"repository {location.repository!r} in {namespace}")
    if wanted not in {None, default}:
        assert wanted is not None  # noqa: S101  narrows the type
        try:
            repositories.resolve(location.repository, wanted)
        except NotFoundError:
            repositories.create_branch(location.repository, wanted, default)
            created.append(f"branch {wanted!r} from {default!r}")
    return created


def _namespace(repositories: LakeFSRepositories, repository: str) -> str:
    store = repositories.block_store()
    if store.default_prefix:
        slash = "" if store.default_prefix.endswith("/") else "/"
        return f"{store.default_prefix}{slash}{repository}"
    if store.kind == "local":
        return f"local://{repository}"
    raise ConfigurationError(
        f"the server keeps objects in {store.kind}, and has no default place for {repository!r}",
        hint=f"Give --storage, such as --storage {store.kind}://BUCKET/{repository}.",
    )


def _unknown_repository(repositories: LakeFSRepositories, name: str) -> NotFoundError:
    return NotFoundError(
        f"LakeFS has no repository {name!r}; it has: {_some(repositories.names())}",
        hint="Correct the name, or create it: `perago workspace put DIR "
        f"{name} -m MESSAGE --create`.",
    )


def _unknown_ref(repositories: LakeFSRepositories, location: Location) -> NotFoundError:
    branches = [
        name
        for name in repositories.branches(location.repository)
        if not name.startswith(STAGING_PREFIX)
    ]
    return NotFoundError(
        f"repository {location.repository!r} has no branch, tag or commit {location.ref!r}; "
        f"its branches: {_some(branches)}",
        hint="Correct the name. `perago workspace put … --create` creates a branch.",
    )


def _some(names: list[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
