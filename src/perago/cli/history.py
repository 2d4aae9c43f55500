"""``perago history``: what was published on a branch, and what was lost on the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.json_option import AsJson
from perago.names import MOST_COMMITS_SHOWN

if TYPE_CHECKING:
    from perago.operations.history import History, HistoryEntry
    from perago.protocol.record import Record
    from perago.protocol.workspace import Commit

_SHORT = 12
_LONGEST_TEXT = 120


def history(
    repository: Annotated[str, typer.Argument(metavar="REPOSITORY", help="A LakeFS repository.")],
    branch: Annotated[
        str | None,
        typer.Argument(metavar="BRANCH", help="Default: the repository's default branch."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            max=MOST_COMMITS_SHOWN,
            help="Show N commits of the branch.",
        ),
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Show a branch's publications, people's commits, and replaced and withdrawn commits."""
    from contextlib import closing

    from perago.lakefs.control import LakeFSControl
    from perago.lakefs.objects import LakeFSObjects
    from perago.operations.history import read_history
    from perago.operations.locations import naming_what_is_there
    from perago.settings import load_settings
    from perago.wiring.connections import lakefs_connection

    connection = lakefs_connection(load_settings())
    with (
        closing(LakeFSControl(connection)) as lake,
        closing(LakeFSObjects(connection)) as objects,
        naming_what_is_there(connection, repository, branch),
    ):
        found = read_history(lake, objects, repository, branch, limit=limit)
    if as_json:
        output.emit_json(as_document(found))
        return
    for entry in found.entries:
        for line in lines(entry):
            output.say(line)
    if found.more:
        output.note(older_commits(limit))


def older_commits(limit: int) -> str:
    """Say that there are more than ``limit``, and what shows them if anything does."""
    more = min(2 * limit, MOST_COMMITS_SHOWN)
    shows = f"; --limit {more} shows more" if more > limit else ""
    return f"older commits are not shown{shows}"


def lines(entry: HistoryEntry) -> list[str]:
    """An entry for people: one line, and one more for what the record says."""
    commit, mark = entry.commit, "  x " if entry.is_lost else ""
    head = f"{mark}{_moment(commit)}  {commit.id[:_SHORT]}  {_what(entry)}  {_objects(entry)}"
    if entry.record is None:
        return [head]
    return [head, f"{' ' * len(mark)}    {_attempt(entry.record)}"]


def _moment(commit: Commit) -> str:
    return commit.created.strftime("%Y-%m-%d %H:%M:%SZ") if commit.created else "?"


def _what(entry: HistoryEntry) -> str:
    from perago.text import shorten_line

    commit, record = entry.commit, entry.record
    said = shorten_line(commit.message, _LONGEST_TEXT)
    # The first commit of a repository is LakeFS' own.
    by_hand = f"{commit.committer}: {said}" if commit.committer else said
    task = (record.task_name or record.reference_name) if record else by_hand
    instead = entry.replaced_by[:_SHORT] if entry.replaced_by else None
    match entry.kind:
        case "publication":
            replaced = ", ".join(lost[:_SHORT] for lost in entry.replaces)
            return f"{task}, in place of {replaced}" if replaced else task
        case "replaced":
            return f"{task}, replaced by {instead}" if instead else f"{task}, taken back"
        case "withdrawn":
            return f"{task}, withdrawn" + (f"; {instead} came instead" if instead else "")
        case "restoration":
            return f"{commit.committer} restored {entry.tag}"
        case _:
            return task


def _objects(entry: HistoryEntry) -> str:
    from perago.operations.history import MOST_COUNTED

    more = "+" if entry.changed >= MOST_COUNTED else ""
    text = f"{entry.changed}{more} object{'' if entry.changed == 1 else 's'}"
    return f"{text}  [{entry.tag}]" if entry.is_lost else text


def _attempt(record: Record) -> str:
    loop = f", iteration {record.iteration}" if record.iteration else ""
    return (
        f"step {record.reference_name} of workflow {record.workflow_instance_id}{loop}, "
        f"attempt {record.task_id}, retry {record.retry_count}"
    )


def as_document(found: History) -> dict[str, Any]:
    """A history for programs."""
    return {
        "repository": found.repository,
        "branch": found.branch,
        "head": found.head,
        "more": found.more,
        "entries": [_entry_document(entry) for entry in found.entries],
    }


def _entry_document(entry: HistoryEntry) -> dict[str, Any]:
    from perago.operations.history import MOST_COUNTED

    commit = entry.commit
    return {
        "kind": entry.kind,
        "commit": commit.id,
        "parent": commit.first_parent,
        "created": commit.created.isoformat() if commit.created else None,
        "committer": commit.committer,
        "message": commit.message,
        "changed_objects": entry.changed,
        "changed_objects_complete": entry.changed < MOST_COUNTED,
        "replaces": list(entry.replaces),
        "replaced_by": entry.replaced_by,
        "tag": entry.tag,
        "record": record_document(entry.record) if entry.record else None,
    }


def record_document(record: Record) -> dict[str, Any]:
    """A record for programs; its params are an object where they were recorded."""
    fields = {name: getattr(record, name) for name in record.__slots__ if name != "result"}
    try:
        fields["params"] = json.loads(record.params) if record.params else None
    except ValueError:  # written by another tool
        fields["params"] = None
    return fields
