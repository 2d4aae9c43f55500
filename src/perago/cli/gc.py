"""``perago gc``: delete what executions left in LakeFS and no longer need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.json_option import AsJson
from perago.errors import BackendError

if TYPE_CHECKING:
    from perago.operations.gc import GarbageItem, Removed, UnreadRepository


def gc(
    repository: Annotated[
        list[str] | None,
        typer.Option("--repository", metavar="R", help="Look into R only; may be repeated."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, only list.")] = False,
    as_json: AsJson = False,
) -> None:
    """List or delete staging branches of attempts that are over, and old replaced-commit tags."""
    from contextlib import closing
    from datetime import UTC, datetime

    from perago.conductor.client import ConductorAttempts
    from perago.lakefs.garbage import LakeFSGarbage
    from perago.operations.gc import GarbageItem, UnreadRepository, collect, survey
    from perago.settings import load_settings
    from perago.wiring.connections import conductor_connection, lakefs_connection

    settings = load_settings()
    connections = lakefs_connection(settings), conductor_connection(settings)
    with (
        closing(LakeFSGarbage(connections[0])) as lake,
        closing(ConductorAttempts(connections[1])) as attempts,
    ):
        # All attempts are read before anything is deleted.
        found = list(survey(lake, attempts, repository or [], datetime.now(UTC)))
        items = [entry for entry in found if isinstance(entry, GarbageItem)]
        unread = [entry for entry in found if isinstance(entry, UnreadRepository)]
        removed = list(collect(lake, items)) if yes else []
    show = _show_json if as_json else _show
    show(items, removed, unread, deleting=yes)
    errors = [*(problem.error for problem in unread), *(entry.error for entry in removed)]
    output.point_to_doctor_after(*filter(None, errors))
    if any(errors):
        raise typer.Exit(BackendError.exit_code)


def _show(
    items: list[GarbageItem],
    removed: list[Removed],
    unread: list[UnreadRepository],
    *,
    deleting: bool,
) -> None:
    done = {entry.item: entry for entry in removed}
    for item in items:
        entry = done.get(item)
        word = entry.removal if entry else "would delete" if item.verdict.garbage else "keep"
        output.say(f"{word}: {item.kind} {item.name} of {item.repository}: {item.verdict.reason}")
        if entry and entry.error:
            output.note(f"{entry.error.code} {entry.error}")
    for problem in unread:
        output.note(f"{problem.error.code} {problem.repository}: {problem.error}")
    garbage = sum(item.verdict.garbage for item in items)
    if garbage and not deleting:
        output.note(f"{garbage} of {len(items)} can go; run again with --yes to delete them")
    elif not items:
        output.note("executions left nothing here")


def _show_json(
    items: list[GarbageItem],
    removed: list[Removed],
    unread: list[UnreadRepository],
    *,
    deleting: bool,
) -> None:
    done = {entry.item: entry for entry in removed}
    output.emit_json(
        {
            "dry_run": not deleting,
            "items": [_as_json(item, done.get(item)) for item in items],
            "errors": [
                {"repository": problem.repository, "error": str(problem.error)}
                for problem in unread
            ],
        }
    )


def _as_json(item: GarbageItem, entry: Removed | None) -> dict[str, Any]:
    return {
        "kind": item.kind,
        "repository": item.repository,
        "name": item.name,
        "commit": item.commit,
        "garbage": item.verdict.garbage,
        "reason": item.verdict.reason,
        "removal": entry.removal if entry else None,
        "error": str(entry.error) if entry and entry.error else None,
    }
