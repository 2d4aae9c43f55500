"""``perago fence``: the hard fence of a repository."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.json_option import AsJson

if TYPE_CHECKING:
    from perago.operations.fence import FenceAdmin, FenceStatus, Verification

fence_app = typer.Typer(
    rich_markup_mode=None,
    help="Install and prove the hard fence: a LakeFS hook that makes publishing compare-and-swap.",
    no_args_is_help=True,
)

RepositoryArgument = Annotated[
    str, typer.Argument(metavar="REPOSITORY", help="A LakeFS repository.")
]
BranchOption = Annotated[
    str | None,
    typer.Option("--branch", metavar="BRANCH", help="Default: the repository's default branch."),
]
_STATES = {
    "installed": "the fence is installed",
    "outdated": "an earlier version of the fence is installed, and workers accept it; "
    "`perago fence install` updates it",
    "edited": "an edited fence is there, and workers refuse it; `perago fence install` replaces it",
    "foreign": "a file at the fence's path is not Perago's; move it away, then install",
    "missing": "there is no fence; `perago fence install` adds it",
}


@fence_app.command()
def install(
    repository: RepositoryArgument, branch: BranchOption = None, as_json: AsJson = False
) -> None:
    """Commit the fence's action file to a branch; does nothing when it is there."""
    with _admin(repository, branch) as admin:
        done = admin.install(repository, branch)
    where = f"{done.before.branch!r} of {repository!r}"
    if as_json:
        output.emit_json({**_status_json(done.before), "commit": done.commit})
    elif done.commit is None:
        output.say(f"{where}: already installed")
    else:
        word = "installed" if done.before.state == "missing" else "updated"
        output.say(f"{where}: {word} by commit {done.commit}")


@fence_app.command()
def status(
    repository: RepositoryArgument, branch: BranchOption = None, as_json: AsJson = False
) -> None:
    """Say whether a branch's HEAD has the fence; exit code 1 when it has not."""
    with _admin(repository, branch) as admin:
        found = admin.status(repository, branch)
    if as_json:
        output.emit_json(_status_json(found))
    else:
        _say_status(found)
    raise typer.Exit(0 if found.state.fences else 1)


@fence_app.command()
def verify(
    repository: RepositoryArgument, branch: BranchOption = None, as_json: AsJson = False
) -> None:
    """Prove on short-lived branches that the server enforces the fence; exit code 1 if not."""
    with _admin(repository, branch) as admin:
        found = admin.verify(repository, branch)
    if as_json:
        output.emit_json(_verification_json(found))
    else:
        _say_verification(found)
    raise typer.Exit(0 if found.holds else 1)


@contextmanager
def _admin(repository: str, branch: str | None) -> Iterator[FenceAdmin]:
    from perago.lakefs.control import LakeFSControl
    from perago.operations.fence import FenceAdmin
    from perago.operations.locations import naming_what_is_there
    from perago.settings import load_settings
    from perago.wiring.connections import lakefs_connection

    connection = lakefs_connection(load_settings())
    with (
        closing(LakeFSControl(connection)) as lake,
        naming_what_is_there(connection, repository, branch),
    ):
        yield FenceAdmin(lake, output.warn_of_undeleted)


def _say_status(found: FenceStatus) -> None:
    output.say(f"{found.branch!r} of {found.repository!r} at {found.head}: {_STATES[found.state]}")


def _say_verification(found: Verification) -> None:
    if found.refuses_wrong_head is None:
        _say_status(found.status)
        return
    _say_merge("a merge that expects another head", found.refuses_wrong_head, "refused", "LANDED")
    _say_merge("a merge that expects this head", found.accepts_right_head, "landed", "REFUSED")
    _say_merge("a merge that expects nothing", found.accepts_other_merges, "landed", "REFUSED")
    output.say(verdict(found))


def _say_merge(what: str, good: bool | None, expected: str, otherwise: str) -> None:
    if good is not None:
        output.say(f"{what}: {expected if good else otherwise}")


def verdict(found: Verification) -> str:
    """One sentence on what the three merges show."""
    if found.refuses_wrong_head is None:
        return _STATES[found.status.state]
    if found.holds:
        return "the fence holds"
    if not found.refuses_wrong_head and not found.hooks_ran:
        return (
            "the fence DOES NOT hold: the server ran no hook. Actions are disabled there; "
            "set actions.enabled: true in its configuration"
        )
    if not found.refuses_wrong_head:
        return "the fence DOES NOT hold: the server ran hooks, and none refused the wrong head"
    return "the fence refuses too much: another hook of the repository is in the way"


def _status_json(found: FenceStatus) -> dict[str, Any]:
    return {
        "repository": found.repository,
        "branch": found.branch,
        "head": found.head,
        "state": found.state.value,
    }


def _verification_json(found: Verification) -> dict[str, Any]:
    return {
        **_status_json(found.status),
        "holds": found.holds,
        "refuses_wrong_head": found.refuses_wrong_head,
        "accepts_right_head": found.accepts_right_head,
        "accepts_other_merges": found.accepts_other_merges,
        "hooks_ran": found.hooks_ran,
        "verdict": verdict(found),
    }
