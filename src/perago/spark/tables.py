"""The files of tables on a staging branch, as LakeFS lists them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from perago.names import listing_prefix, split_deletes
from perago.protocol.ports import Change
from perago.protocol.workspace import StagingBranch
from perago.spark.ledger import Effect, WriteLedger
from perago.tasks.output_tables import is_data, partition_key
from perago.transfer.inventory import ObjectStore


class StagingStore(ObjectStore, Protocol):
    """An object store that also knows what was written on a branch."""

    def uncommitted(self, staging: StagingBranch) -> Iterator[Change]:
        """What a branch holds beyond its HEAD, in key order."""
        ...


@dataclass(frozen=True, slots=True)
class StagedTables:
    """Implements ``OutputTables``; what it deletes is gone from the branch alone."""

    store: StagingStore
    staging: StagingBranch
    prefix: str
    output_uri: str
    ledger: WriteLedger
    _locks: defaultdict[str, threading.Lock] = field(
        default_factory=lambda: defaultdict(threading.Lock), repr=False
    )
    # Of each table whose older files could not be deleted: what was written before that.
    _unfinished: dict[str, set[str]] = field(default_factory=dict, repr=False)

    def has_files(self, path: str) -> bool:
        start = self._start(path)
        with self._noted(path, Effect.ADDS):
            listed = self.store.list(self.staging.repository, self.staging.branch, start)
            return any(is_data(item.key[len(start) :]) for item in listed)

    def loose_files(self, path: str) -> list[str]:
        start = self._start(path)
        names = (key[len(start) :] for key in self._files_in(start))
        return [f"{listing_prefix(path)}{name}" for name in names]

    @contextmanager
    def replacing_partitions(self, path: str) -> Iterator[None]:
        # Two at once would each keep what the other one wrote.
        with self._locks[path], self.ledger.writing():
            before = self._written(path)
            yield
            with self._noted(path, Effect.REPLACES_PARTITIONS):
                self._unfinished.setdefault(path, before)
                self._delete_older(path, self._new_files(path, before))
                del self._unfinished[path]

    @contextmanager
    def _noted(self, path: str, effect: Effect) -> Iterator[None]:
        """A step of a write that is no command of Spark fails the write, too."""
        uri = f"{self.output_uri}/{path}".rstrip("/")
        try:
            yield
        except BaseException:
            self.ledger.failed(uri, effect)
            raise
        self.ledger.succeeded(uri, effect)

    def _new_files(self, path: str, before: set[str]) -> set[str]:
        """Return the files to keep: of this write, and of earlier ones that were not finished.

        Those may have touched other partitions, where older files still lie beside the new ones.
        """
        written = self._written(path)
        latest = written - before
        touched = set(map(_partition, latest))
        earlier = written - self._unfinished[path] - latest
        return latest | {key for key in earlier if _partition(key) not in touched}

    def _delete_older(self, path: str, new: set[str]) -> None:
        touched = set(map(_partition, new))
        if touched:
            # An empty table has its schema in a file beside the partitions; these have it now.
            touched.add(_partition(self._start(path)))
        found = self._files_of(self._start(path), touched)
        older = [key for key in found if key not in new]
        for keys in split_deletes(older):
            self.store.delete(self.staging.repository, self.staging.branch, keys)

    def _files_of(self, start: str, touched: set[str]) -> Iterator[str]:
        """Yield the keys of the data files in some partitions, however their columns are spelt."""
        ways = {way for partition in touched for way in _ways_to(partition)}
        folders = [start] if touched else []
        while folders:
            folder = folders.pop()
            for item in self.store.level(self.staging.repository, self.staging.branch, folder):
                if isinstance(item, str):
                    folders.extend([item] if _partition(item) in ways else [])
                elif _partition(folder) in touched and is_data(item.key[len(folder) :]):
                    yield item.key

    def _files_in(self, folder: str) -> list[str]:
        level = self.store.level(self.staging.repository, self.staging.branch, folder)
        keys = (item.key for item in level if not isinstance(item, str))
        return [key for key in keys if is_data(key[len(folder) :])]

    def _written(self, path: str) -> set[str]:
        """Return the keys of data files that this branch has beyond its input."""
        start = self._start(path)
        return {
            change.key
            for change in self.store.uncommitted(self.staging)
            if change.kind != "removed"
            and change.key.startswith(start)
            and is_data(change.key[len(start) :])
        }

    def _start(self, path: str) -> str:
        """Return how the keys of a table begin; ``""`` is the whole workspace."""
        return f"{listing_prefix(self.prefix)}{listing_prefix(path)}"


def _partition(key: str) -> str:
    """Return the partition that a file is in, or that a folder is."""
    return partition_key(key[: key.rfind("/") + 1])


def _ways_to(partition: str) -> Iterator[str]:
    """Yield a partition and all that it is below."""
    parts = partition.split("/")
    return ("/".join(parts[: end + 1]) for end in range(len(parts)))
