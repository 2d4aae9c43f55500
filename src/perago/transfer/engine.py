"""The in-process engine: one partition, moved by threads of this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from perago.protocol.workspace import StagingBranch
from perago.transfer.cache import ObjectCache
from perago.transfer.comparing import Suspect, changed_files
from perago.transfer.downloading import DownloadTarget, download_partition, landing_folder
from perago.transfer.engines import Plan
from perago.transfer.inventory import ObjectStore, Projection, RemoteObject, Source, project
from perago.transfer.kept import KeptWorkspace
from perago.transfer.partition import Bounds, TransferSize
from perago.transfer.paths import FileSystem, check_projection
from perago.transfer.plan import SyncPlan, build_sync_plan, suspects
from perago.transfer.removal import remove_tree
from perago.transfer.scan import FetchedFile, LocalTree, scan, scan_within
from perago.transfer.uploading import delete_partition, upload_partition


@dataclass(frozen=True, slots=True)
class Engine:
    """Downloads, hashes, deletes and uploads with a number of threads."""

    store: ObjectStore
    threads: int = 32
    cache: ObjectCache | None = None
    # Where the attempt before may have left files of the next workspace.
    kept: KeptWorkspace | None = None

    def fetch(self, source: Source, data: Path) -> FetchedProjection:
        return self.fetch_listed(source, source.listing(self.store), data)

    def fetch_listed(
        self, source: Source, listing: Iterable[RemoteObject], data: Path
    ) -> FetchedProjection:
        projection = project(listing, source.prefix)
        check_projection(projection, data, FileSystem.probe(data))
        # What an attempt before counted that failed is not this one's.
        self._cache_counts()
        files = self.kept.take(source, projection.files, data) if self.kept else {}
        counts = _kept_counts(files) if self.kept else {}
        missing = {path: item for path, item in projection.files.items() if path not in files}
        rest = replace(projection, files=missing)
        files |= self.download(source.repository, source.ref, rest, data)
        counts |= self._cache_counts()
        return FetchedProjection(self, source, projection, files, data, counts)

    def download(
        self, repository: str, ref: str, projection: Projection, folder: Path
    ) -> dict[str, FetchedFile]:
        """Write every file of a projection below ``folder``; return their records and hashes."""
        make_folders(projection.markers, folder)
        return download_partition(
            self.store,
            repository,
            ref,
            projection.files.items(),
            DownloadTarget(folder),
            self.threads,
            self.cache,
        )

    def stage(self, plan: Plan, staging: StagingBranch, data: Path) -> dict[str, int]:
        collected = plan.collect()
        repository, branch = staging.repository, staging.branch
        delete_partition(self.store, repository, branch, collected.deletes, self.threads)
        upload_partition(
            self.store, repository, branch, collected.uploads, data, self.threads, self.cache
        )
        # Nothing is looked up here.
        counts = self._cache_counts()
        return {name: counts[name] for name in counts if name == "cache_evictions"}

    def _cache_counts(self) -> dict[str, int]:
        return self.cache.take_counts() if self.cache else {}


@dataclass(frozen=True, slots=True)
class FetchedProjection:
    """A downloaded projection, with the record and hash of each file, in memory."""

    engine: Engine
    source: Source
    projection: Projection
    files: dict[str, FetchedFile]
    data: Path
    # How many files need not be downloaded, and what else the cache counts.
    spared: dict[str, int]

    def counts(self) -> dict[str, int]:
        size = sum(item.size for item in self.projection.files.values())
        return {"objects": len(self.files), "bytes": size, **self.spared}

    def changes(self, body_started_ns: int) -> SyncPlan:
        tree = scan(self.data)
        return self._plan(tree, self._suspects(tree, body_started_ns))

    def changes_within(self, bounds: Bounds, body_started_ns: int) -> SyncPlan | None:
        """Compare as ``changes`` does, but not beyond some bounds: then return None.

        They bound the entries of the data folder, and the bytes that would have to be hashed.
        """
        if (tree := scan_within(self.data, bounds.objects)) is None:
            return None
        suspected = self._suspects(tree, body_started_ns)
        to_hash = TransferSize(len(suspected), sum(one.size for one in suspected))
        return self._plan(tree, suspected) if bounds.hold(to_hash) else None

    def _suspects(self, tree: LocalTree, body_started_ns: int) -> list[Suspect]:
        return [self._suspect(path) for path in suspects(tree, self.files, body_started_ns)]

    def _suspect(self, path: str) -> Suspect:
        remote, file = self.projection.files[path], self.files[path]
        return Suspect(path, remote.key, remote.size, file.digest, file.is_hashed)

    def _plan(self, tree: LocalTree, suspected: list[Suspect]) -> SyncPlan:
        store, threads = self.engine.store, self.engine.threads
        repository, ref, prefix = self.source.repository, self.source.ref, self.source.prefix
        changed = changed_files(store, repository, ref, self.data, suspected, threads)
        return build_sync_plan(
            projection=self.projection,
            tree=tree,
            prefix=prefix,
            is_changed=changed.__contains__,
        )


def _kept_counts(files: dict[str, FetchedFile]) -> dict[str, int]:
    size = sum(file.record.size for file in files.values())
    return {"kept_files": len(files), "kept_bytes": size}


@contextmanager
def download_target(data: Path) -> Iterator[DownloadTarget]:
    """Make the landing folder of a download, and remove it at the end of the block.

    A task that still runs after the block finds no landing folder, and so cannot add a file.
    """
    landing = landing_folder(data)
    landing.mkdir(mode=0o700)
    try:
        yield DownloadTarget(data, landing)
    finally:
        # Renamed first: while a tree is being removed, more files could be written into it.
        remove_tree(landing.rename(landing.with_suffix(".over")))


def make_folders(markers: Iterable[str], folder: Path) -> None:
    """Make the folders that markers stand for; those of files are made with the files."""
    for path in markers:
        (folder / path).mkdir(parents=True, exist_ok=True)
