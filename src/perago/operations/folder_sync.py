"""Make a branch equal to a folder by one commit, or a folder equal to a commit.

Both ways add and change; only ``delete`` also removes what the other side does not have.
"""

from __future__ import annotations

import errno
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perago.errors import NotFoundError, ProjectionError
from perago.operations.short_lived import (
    merge_short_lived,
    refuse_uncommitted,
    short_lived_branch,
)
from perago.progress import Advance, ShowTransfer, silent
from perago.protocol.ports import Lake
from perago.protocol.workspace import Commit, StagedWorkspace, StagingBranch
from perago.text import first_lines, quote_path
from perago.transfer.comparing import Suspect, changed_files
from perago.transfer.counted import CountedStore
from perago.transfer.downloading import DownloadTarget, download_partition
from perago.transfer.engine import Engine, make_folders
from perago.transfer.inventory import ObjectStore, Projection, RemoteObject, Source, project
from perago.transfer.paths import FileSystem, check_projection
from perago.transfer.plan import SyncPlan, build_sync_plan
from perago.transfer.removal import remove_tree
from perago.transfer.scan import LocalTree, scan

# Where a `get` puts what is under way, in the folder itself.
_LANDING = ".perago-get-"
_EMPTY = LocalTree({}, frozenset())


@dataclass(frozen=True, slots=True)
class Compared:
    """A folder beside a projection: both sides, and which paths on both differ in content."""

    folder: LocalTree
    projection: Projection
    changed: frozenset[str]

    @property
    def only_in_folder(self) -> list[str]:
        return sorted(path for path in self.folder.files if path not in self.projection.files)

    @property
    def only_in_lakefs(self) -> list[str]:
        return sorted(path for path in self.projection.files if path not in self.folder.files)

    @property
    def unchanged(self) -> int:
        both = sum(path in self.projection.files for path in self.folder.files)
        return both - len(self.changed)

    def __bool__(self) -> bool:
        """Whether the two sides differ."""
        return bool(self.changed or self.only_in_folder or self.only_in_lakefs)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many files were moved or removed."""

    added: int
    changed: int
    removed: int
    unchanged: int
    size: int


@dataclass(frozen=True, slots=True)
class PutResult:
    """What a put did; ``commit`` is None when there was nothing to change."""

    head: str
    commit: str | None
    counts: Counts
    # The commit below ours, when it is not the one that the folder was compared with.
    landed_on: str | None = None


def compare(store: ObjectStore, source: Source, folder: Path, threads: int) -> Compared:
    """Compare the content of a folder with that of a projection; a missing folder is empty."""
    tree = _without_landings(scan(folder)) if folder.exists() else _EMPTY
    projection = project(source.listing(store), source.prefix)
    both = [path for path in tree.files if path in projection.files]
    suspects = [_suspect(path, projection.files[path]) for path in both]
    changed = changed_files(store, source.repository, source.ref, folder, suspects, threads)
    return Compared(tree, projection, frozenset(changed))


def _suspect(path: str, item: RemoteObject) -> Suspect:
    return Suspect(path, item.key, item.size, item.checksum, is_hashed=False)


def _without_landings(tree: LocalTree) -> LocalTree:
    """A tree without what a `get` that was killed, or that runs, has downloaded in part."""
    return LocalTree(
        {path: file for path, file in tree.files.items() if not path.startswith(_LANDING)},
        frozenset(path for path in tree.folders if not path.startswith(_LANDING)),
    )


@dataclass(frozen=True, slots=True)
class Put:
    """A folder, and the branch that is to hold it below a prefix."""

    lake: Lake
    engine: Engine
    repository: str
    branch: str
    prefix: str
    report_undeleted: Callable[[str, str], None]
    show: ShowTransfer = silent

    def run(self, folder: Path, message: str, *, delete: bool) -> PutResult:
        """Commit what differs. Everything becomes visible at once, by one merge, or nothing.

        Raises ``PublishFenceError`` when the branch cannot be moved from where it was.
        """
        head = self.lake.get_head(self.repository, self.branch)
        refuse_uncommitted(self.lake, self.repository, self.branch)
        source = Source(self.repository, head.id, self.prefix)
        compared = compare(self.engine.store, source, folder, self.engine.threads)
        plan = _plan(compared, self.prefix, delete=delete)
        counts = _put_counts(compared, plan, delete=delete)
        if not plan:
            return PutResult(head.id, None, counts)
        name = f"perago-put-{uuid.uuid4().hex}"
        with short_lived_branch(
            self.lake, self.repository, name, head.id, self.report_undeleted
        ) as staging:
            with self.show("upload", counts.size) as advance:
                self._stage(plan, staging, folder, advance)
            staged = self.lake.commit(staging, message, {})
            made = self._merge(staged, head, message)
        below = made.first_parent
        return PutResult(head.id, made.id, counts, None if below == head.id else below)

    def _stage(
        self, plan: SyncPlan, staging: StagingBranch, folder: Path, advance: Advance
    ) -> None:
        engine = replace(self.engine, store=CountedStore(self.engine.store, advance))
        try:
            engine.stage(plan, staging, folder)
        except ProjectionError as error:
            error.hint = "Nothing was put. Run the command again when nothing writes to the folder."
            raise

    def _merge(self, staged: StagedWorkspace, head: Commit, message: str) -> Commit:
        return merge_short_lived(
            self.lake,
            staged,
            self.branch,
            head.id,
            message=message,
            has_landed=lambda now: (
                now.first_parent == head.id
                and self.lake.is_same(self.repository, staged.commit, now.id)
            ),
            hint="Run the command again: what is there already is not sent twice.",
        )


def _plan(compared: Compared, prefix: str, *, delete: bool) -> SyncPlan:
    plan = build_sync_plan(
        projection=compared.projection,
        tree=compared.folder,
        prefix=prefix,
        is_changed=lambda path: path in compared.changed,
    )
    if delete:
        return plan
    new = [upload.path for upload in plan.uploads]
    kept = _Names.of(compared.only_in_lakefs, compared.projection.markers)
    _refuse_collisions(_Names.of(new), kept, "LakeFS")
    return replace(plan, deletes=())


def _put_counts(compared: Compared, plan: SyncPlan, *, delete: bool) -> Counts:
    return Counts(
        added=len(compared.only_in_folder),
        changed=len(compared.changed),
        removed=len(compared.only_in_lakefs) if delete else 0,
        unchanged=plan.unchanged,
        size=plan.summary()["upload_bytes"],
    )


def get(
    store: ObjectStore,
    source: Source,
    folder: Path,
    threads: int,
    *,
    delete: bool,
    show: ShowTransfer = silent,
) -> Counts:
    """Write the files of a projection below a folder; each file appears whole or not at all."""
    compared = compare(store, source, folder, threads)
    if source.prefix and not compared.projection.files and not compared.projection.markers:
        raise NotFoundError(
            f"no object of {source.repository!r} lies below {source.prefix!r} at {source.ref}",
            hint=f"`perago workspace ls {source.repository}` shows what is there.",
        )
    files = compared.projection.files
    wanted = [*compared.only_in_lakefs, *sorted(compared.changed)]
    surplus = compared.only_in_folder if delete else []
    if not delete:
        kept = _Names.of(compared.only_in_folder, compared.folder.folders)
        _refuse_collisions(_Names.of(wanted, compared.projection.markers), kept, "the folder")
    folder.mkdir(parents=True, exist_ok=True)
    check_projection(compared.projection, folder, FileSystem.probe(folder))
    if delete:
        _remove(folder, surplus, compared)
    make_folders(compared.projection.markers, folder)
    # Inside the folder, so that a rename into place never crosses file systems.
    landing = Path(tempfile.mkdtemp(prefix=".perago-get-", dir=folder))
    size = sum(files[path].size for path in wanted)
    try:
        target = DownloadTarget(folder, landing)
        objects = [(path, files[path]) for path in wanted]
        with show("download", size) as advance:
            counted = CountedStore(store, advance)
            download_partition(counted, source.repository, source.ref, objects, target, threads)
    finally:
        remove_tree(landing)
    return Counts(
        added=len(compared.only_in_lakefs),
        changed=len(compared.changed),
        removed=len(surplus),
        unchanged=compared.unchanged,
        size=size,
    )


def _remove(folder: Path, surplus: Sequence[str], compared: Compared) -> None:
    """Remove files, and the folders that the other side has not."""
    for path in surplus:
        (folder / path).unlink()
    markers, files = compared.projection.markers, compared.projection.files
    needed = {*markers, *_parents([*markers, *files])}
    for path in sorted(compared.folder.folders - needed, key=len, reverse=True):
        try:
            (folder / path).rmdir()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # what came into it meanwhile is kept
                raise


@dataclass(frozen=True, slots=True)
class _Names:
    """The files and the folders of one side."""

    files: frozenset[str]
    folders: frozenset[str]

    @classmethod
    def of(cls, files: Sequence[str], folders: Collection[str] = ()) -> _Names:
        return cls(frozenset(files), frozenset({*folders, *_parents([*folders, *files])}))


def _refuse_collisions(new: _Names, kept: _Names, where: str) -> None:
    """Refuse a file where the other side keeps a folder of that name, and the reverse."""
    bad = sorted((new.files & kept.folders) | (new.folders & kept.files))
    count, shown = first_lines(map(quote_path, bad))
    if count:
        raise ProjectionError(
            f"{count} of the files are folders in {where}, or the reverse:\n{shown}",
            hint="--delete removes what is in the way, with all else that the other side lacks.",
        )


def _parents(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return found
