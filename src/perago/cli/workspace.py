"""``perago workspace``: get data into LakeFS and out of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.json_option import AsJson

if TYPE_CHECKING:
    from perago.lakefs.control import LakeFSControl
    from perago.lakefs.objects import LakeFSObjects
    from perago.lakefs.repositories import LakeFSRepositories
    from perago.operations.folder_sync import Counts
    from perago.operations.locations import Location, PinnedLocation
    from perago.transfer.engine import Engine

workspace_app = typer.Typer(
    rich_markup_mode=None,
    help="Move files between a folder and LakeFS, and look at what is there.",
    no_args_is_help=True,
)

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="A local folder.")
]
LocationArgument = Annotated[
    str,
    typer.Argument(
        metavar="REPOSITORY[@REF][/PREFIX]",
        help="A branch, tag or commit; by default the default branch.",
    ),
]


@workspace_app.command()
def put(
    folder: Folder,
    given: Annotated[
        str,
        typer.Argument(
            metavar="REPOSITORY[@BRANCH][/PREFIX]", help="By default the default branch."
        ),
    ],
    message: Annotated[
        str, typer.Option("-m", "--message", metavar="MESSAGE", help="The commit's message.")
    ],
    create: Annotated[
        bool, typer.Option("--create", help="Create the repository or the branch if missing.")
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(
            "--storage",
            metavar="URI",
            help="Where a new repository keeps its objects, such as s3://bucket/name.",
        ),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Also remove what the folder does not have.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Commit the files of a folder to a branch: one commit, or none when nothing differs."""
    from perago.operations.folder_sync import Put
    from perago.operations.locations import create_missing, parse_location, pin
    from perago.progress import transfer

    location = parse_location(given)
    with _open() as lakefs:
        if create:
            for what in create_missing(lakefs.repositories, location, storage):
                output.note(f"created {what}")
        pinned = pin(lakefs.repositories, location)
        branch = _branch(lakefs.repositories, pinned.location)
        found = pinned.location
        task = Put(
            lakefs.control,
            lakefs.engine,
            found.repository,
            branch,
            found.prefix,
            output.warn_of_undeleted,
            transfer,
        )
        done = task.run(folder, message, delete=delete)
    if done.landed_on is not None:
        output.warn(f"{done.landed_on} landed meanwhile: the commit is on top of it")
    if as_json:
        output.emit_json(
            {
                **_place_json(found, done.commit or done.head),
                "changed": done.commit is not None,
                **_counts_json(done.counts),
            }
        )
    elif done.commit is None:
        output.say(f"{found}: nothing changed, at {done.head}")
    else:
        output.say(f"{found}: commit {done.commit}: {_counted(done.counts)}")


@workspace_app.command()
def get(
    given: LocationArgument,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Made where it is missing.")
    ],
    delete: Annotated[
        bool, typer.Option("--delete", help="Also remove files that are not in LakeFS.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the files of a repository, or of a folder of it, into a local folder."""
    from perago.operations.folder_sync import get as fetch
    from perago.progress import transfer

    with _open() as lakefs:
        pinned = _pin(lakefs.repositories, given)
        source = _source(pinned)
        threads = lakefs.engine.threads
        counts = fetch(lakefs.objects, source, folder, threads, delete=delete, show=transfer)
    if as_json:
        output.emit_json({**_place_json(pinned.location, pinned.commit), **_counts_json(counts)})
    else:
        output.say(f"{pinned.location} at {pinned.commit}: {_counted(counts)}")


@workspace_app.command()
def ls(
    given: LocationArgument,
    recursive: Annotated[
        bool, typer.Option("-r", "--recursive", help="List the files of all folders below.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the files and folders of a location, with their sizes in bytes."""
    from perago.names import listing_prefix
    from perago.transfer.inventory import RemoteObject

    with _open() as lakefs:
        pinned = _pin(lakefs.repositories, given)
        start = listing_prefix(pinned.location.prefix)
        look = lakefs.objects.list if recursive else lakefs.objects.level
        entries = list(look(pinned.location.repository, pinned.commit, start))
    files = {item.key: item.size for item in entries if isinstance(item, RemoteObject)}
    folders = [item for item in entries if isinstance(item, str)]
    if as_json:
        listed = [{"path": key.removeprefix(start), "size": files[key]} for key in files]
        names = [key.removeprefix(start) for key in folders]
        where = _place_json(pinned.location, pinned.commit)
        output.emit_json({**where, "files": listed, "folders": names})
        return
    output.note(f"{pinned.location} at {pinned.commit}")
    for key in sorted([*files, *folders]):
        output.say(f"{files.get(key, ''):>12}  {key.removeprefix(start)}")
    if not entries:
        output.note("no objects here")


@workspace_app.command()
def diff(folder: Folder, given: LocationArgument, as_json: AsJson = False) -> None:
    """Compare a folder with LakeFS, file by file; exit code 1 when they differ.

    `+` is only in the folder, `-` only in LakeFS, and `~` is in both with other content.
    """
    from perago.operations.folder_sync import compare

    with _open() as lakefs:
        pinned = _pin(lakefs.repositories, given)
        found = compare(lakefs.objects, _source(pinned), folder, lakefs.engine.threads)
    if as_json:
        output.emit_json(
            {
                **_place_json(pinned.location, pinned.commit),
                "only_in_folder": found.only_in_folder,
                "only_in_lakefs": found.only_in_lakefs,
                "changed": sorted(found.changed),
                "unchanged": found.unchanged,
            }
        )
    else:
        output.note(f"{folder} against {pinned.location} at {pinned.commit}")
        marks = dict.fromkeys(found.changed, "~")
        marks |= dict.fromkeys(found.only_in_folder, "+")
        marks |= dict.fromkeys(found.only_in_lakefs, "-")
        for path in sorted(marks):
            output.say(f"{marks[path]} {path}")
        if not found:
            output.note("no difference")
    raise typer.Exit(1 if found else 0)


@dataclass(frozen=True, slots=True)
class _LakeFS:
    control: LakeFSControl
    objects: LakeFSObjects
    repositories: LakeFSRepositories
    engine: Engine


@contextmanager
def _open() -> Iterator[_LakeFS]:
    from perago.lakefs.control import LakeFSControl
    from perago.lakefs.objects import LakeFSObjects
    from perago.lakefs.repositories import LakeFSRepositories
    from perago.settings import load_settings
    from perago.transfer.engine import Engine
    from perago.wiring.connections import lakefs_connection

    settings = load_settings()
    lakefs = lakefs_connection(settings)
    with (
        closing(LakeFSControl(lakefs)) as control,
        closing(LakeFSObjects(lakefs)) as objects,
        closing(LakeFSRepositories(lakefs)) as repositories,
    ):
        engine = Engine(objects, threads=settings.transfer_threads)
        yield _LakeFS(control, objects, repositories, engine)


def _pin(repositories: LakeFSRepositories, given: str) -> PinnedLocation:
    from perago.operations.locations import parse_location, pin

    return pin(repositories, parse_location(given))


def _source(pinned: PinnedLocation) -> Any:
    from perago.transfer.inventory import Source

    return Source(pinned.location.repository, pinned.commit, pinned.location.prefix)


def _branch(repositories: LakeFSRepositories, location: Location) -> str:
    """Return the name after the ``@``, which must be a branch to be put to."""
    from perago.errors import ConfigurationError

    if location.ref is None or location.ref not in repositories.branches(location.repository):
        raise ConfigurationError(
            f"{location.ref!r} of {location.repository!r} is no branch, and cannot be moved",
            hint="Give a branch; --create makes a new one.",
        )
    return location.ref


def _place_json(location: Location, commit: str) -> dict[str, Any]:
    return {
        "repository": location.repository,
        "ref": location.ref,
        "prefix": location.prefix,
        "commit": commit,
    }


def _counts_json(counts: Counts) -> dict[str, Any]:
    return {
        "files": {
            "added": counts.added,
            "changed": counts.changed,
            "removed": counts.removed,
            "unchanged": counts.unchanged,
        },
        "bytes": counts.size,
    }


def _counted(counts: Counts) -> str:
    return (
        f"{counts.added} added, {counts.changed} changed, {counts.removed} removed, "
        f"{counts.unchanged} unchanged; {counts.size} bytes moved"
    )
