"""``perago restore``: bring a replaced or withdrawn commit back to its branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.json_option import AsJson

if TYPE_CHECKING:
    from perago.operations.restore import Restoration


def restore(
    repository: Annotated[str, typer.Argument(metavar="REPOSITORY", help="A LakeFS repository.")],
    tag: Annotated[
        str,
        typer.Argument(
            metavar="TAG", help="The tag of the lost commit; `perago history` lists them."
        ),
    ],
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch",
            metavar="BRANCH",
            help="Default: the branch that the commit was made for, or the default branch.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Restore; without it, only show what would change.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring back what a replaced or withdrawn commit held, by one commit on its branch."""
    from contextlib import closing

    from perago.lakefs.control import LakeFSControl
    from perago.lakefs.objects import LakeFSObjects
    from perago.operations.locations import naming_what_is_there
    from perago.operations.restore import Restorer
    from perago.settings import load_settings
    from perago.wiring.connections import lakefs_connection

    connection = lakefs_connection(load_settings())
    with (
        closing(LakeFSControl(connection)) as lake,
        closing(LakeFSObjects(connection)) as objects,
        naming_what_is_there(connection, repository, branch),
    ):
        restorer = Restorer(lake, objects, output.warn_of_undeleted)
        found = restorer.restore(repository, tag, branch, really=yes)
    if as_json:
        output.emit_json(as_document(found, dry_run=not yes))
        return
    for line in lines(found):
        output.say(line)
    if found.commit is None and not found.already:
        output.note("nothing was changed; run again with --yes to restore")


def lines(found: Restoration) -> list[str]:
    """A restoration for people."""
    lost = found.lost.commit
    if found.already:
        where = f"by commit {found.commit}" if found.commit else "in other commits"
        return [f"{found.branch!r} of {found.repository!r} has commit {lost.id} already, {where}"]
    shown = [f"  {change.kind:<8} {change.key}" for change in found.changes]
    if left := found.changed - len(shown):
        shown.append(f"  … and {left} more")
    instead = f", in place of {found.instead}" if found.instead else ""
    later = f"; {found.later} later commits stay" if found.later else ""
    what = f"commit {lost.id}, which was {found.lost.how}{instead}"
    if found.commit:
        last = f"restored by commit {found.commit} on {found.branch!r}: {what}"
    else:
        last = f"would be restored on {found.branch!r} at {found.head}: {what}"
    return [*shown, f"{last}; {found.changed} objects{later}"]


def as_document(found: Restoration, *, dry_run: bool) -> dict[str, Any]:
    """A restoration for programs."""
    return {
        "dry_run": dry_run,
        "repository": found.repository,
        "branch": found.branch,
        "head": found.head,
        "tag": found.lost.tag,
        "lost_commit": found.lost.commit.id,
        "how": found.lost.how,
        "in_place_of": found.instead,
        "later_commits": found.later,
        "already": found.already,
        "commit": found.commit,
        "counts": found.counts,
        "changes": [{"key": it.key, "kind": it.kind} for it in found.changes],
        "changes_complete": found.changed == len(found.changes),
    }
