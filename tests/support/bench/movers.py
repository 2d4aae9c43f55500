"""Who moves a folder to LakeFS and back: what an attempt does, and its peers.

Each has the same two jobs. ``up`` takes a folder to a branch, ``down`` a commit to an empty folder;
both return their seconds. What only arranges the job is not timed: the branch of a peer, the copy
of the files into a workspace, and the removal of what came.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import obstore
from obstore.store import S3Store

from perago.transfer.scan import scan
from perago.transfer.workspaces import spread_folders
from support.bench import attempts_way
from support.bench.attempts_way import PREFIX, THREADS, size_of
from support.bench.peers import Peer, lakefs_variables, run
from support.bench.rounds import level_memory, seconds_of
from support.lake_repository import LakeRepository

_SECONDS = 900.0


class Mover(Protocol):
    """Moves a folder up and down."""

    def up(self, lake: LakeRepository, base: str, folder: Path) -> tuple[float, str]:
        """Upload below ``PREFIX`` of a new branch from ``base``; the seconds and the commit."""
        ...

    def down(self, lake: LakeRepository, ref: str, target: Path, size: int) -> tuple[float, int]:
        """Download what is below ``PREFIX``; the seconds, and how many files came.

        ``target`` is a folder that exists and is empty; ``size`` is how many bytes will come.
        """
        ...


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """The same in a process of its own, whose peak memory is then known."""

    caches: Path
    megabytes: list[float] = field(default_factory=list)

    def up(self, lake: LakeRepository, base: str, folder: Path) -> tuple[float, str]:
        told = self._run(lake, "up", base, folder)
        return float(told["seconds"]), str(told["found"])

    def down(self, lake: LakeRepository, ref: str, target: Path, size: int) -> tuple[float, int]:
        told = self._run(lake, "down", ref, target, size)
        return float(told["seconds"]), int(told["found"])

    def _run(
        self, lake: LakeRepository, way: str, ref: str, folder: Path, size: int | None = None
    ) -> dict[str, Any]:
        connection = lake.connection
        order = {
            "way": way,
            "ref": ref,
            "folder": str(folder),
            "size": size,
            "caches": str(self.caches),
            "repository": lake.repository,
            "root": str(lake.root),
            "endpoint": connection.endpoint,
            "access_key_id": connection.access_key_id,
            "secret": connection.secret_access_key.get_secret_value(),
        }
        ran = subprocess.run(
            [sys.executable, "-m", attempts_way.__name__],
            # By the standard input: every user can see the arguments.
            input=json.dumps(order),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        self.megabytes.append(float(told["megabytes"]))
        return told


class _CommandMover:
    """A peer that is a program: one command up, one down."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def up(self, lake: LakeRepository, base: str, folder: Path) -> tuple[float, str]:
        command = [self.peer.program]
        branch = lake.staging(base).branch
        command += self.upload(f"{lake.repository}/{branch}/{PREFIX}/", folder)
        return self._timed(lake, command, size_of(folder)), lake.commit(branch)

    def down(self, lake: LakeRepository, ref: str, target: Path, size: int) -> tuple[float, int]:
        command = [self.peer.program]
        command += self.download(f"{lake.repository}/{ref}/{PREFIX}/", target)
        seconds = self._timed(lake, command, size)
        return seconds, len(scan(target).files)

    def _timed(self, lake: LakeRepository, command: list[str], size: int) -> float:
        # Without the user's own settings of the program.
        env = {"PATH": os.environ.get("PATH", ""), "HOME": str(lake.root), **self.variables(lake)}
        level_memory(lake.root, size)
        return seconds_of(lambda: run(command, env, _SECONDS))

    def upload(self, place: str, folder: Path) -> list[str]:
        raise NotImplementedError

    def download(self, place: str, target: Path) -> list[str]:
        raise NotImplementedError

    def variables(self, lake: LakeRepository) -> dict[str, str]:
        raise NotImplementedError


class Lakectl(_CommandMover):
    """LakeFS's own client; it uses presigned addresses where the server offers them."""

    def upload(self, place: str, folder: Path) -> list[str]:
        options = ["--recursive", "--no-progress", "-p", str(THREADS)]
        return ["fs", "upload", f"lakefs://{place}", "--source", f"{folder}/", *options]

    def download(self, place: str, target: Path) -> list[str]:
        options = ["--recursive", "--no-progress", "-p", str(THREADS)]
        return ["fs", "download", f"lakefs://{place}", str(target), *options]

    def variables(self, lake: LakeRepository) -> dict[str, str]:
        return lakefs_variables(lake.connection)


class Rclone(_CommandMover):
    """rclone on the S3 gateway, which makes no use of LakeFS's own API."""

    def upload(self, place: str, folder: Path) -> list[str]:
        # Nothing is there: to look for what need not be copied would only cost time.
        return ["copy", str(folder), f"lake:{place}", "--no-check-dest", *self._options()]

    def download(self, place: str, target: Path) -> list[str]:
        return ["copy", f"lake:{place}", str(target), "--no-check-dest", *self._options()]

    def _options(self) -> list[str]:
        return ["--transfers", str(THREADS), "--checkers", str(THREADS), "--config", ""]

    def variables(self, lake: LakeRepository) -> dict[str, str]:
        connection = lake.connection
        settings = {
            "TYPE": "s3",
            "PROVIDER": "Other",
            "ENDPOINT": connection.gateway,
            "ACCESS_KEY_ID": connection.access_key_id,
            "SECRET_ACCESS_KEY": connection.secret_access_key.get_secret_value(),
            "FORCE_PATH_STYLE": "true",
            "NO_CHECK_BUCKET": "true",
        }
        return {f"RCLONE_CONFIG_LAKE_{name}": value for name, value in settings.items()}


class _ObjectMover:
    """A peer that is a library: one call for each object, by a number of threads."""

    threads = THREADS

    def up(self, lake: LakeRepository, base: str, folder: Path) -> tuple[float, str]:
        branch = lake.staging(base).branch
        put = self.putter(lake, branch)
        names = sorted(scan(folder).files)

        def move(name: str) -> None:
            put(f"{PREFIX}/{name}", folder / name)

        level_memory(lake.root, size_of(folder))
        return seconds_of(lambda: self._all(move, names)), lake.commit(branch)

    def down(self, lake: LakeRepository, ref: str, target: Path, size: int) -> tuple[float, int]:
        get = self.getter(lake, ref)

        def fetch() -> None:
            listed = lake.objects.list(lake.repository, ref, f"{PREFIX}/")
            self._all(move, [item.key for item in listed])

        def move(key: str) -> None:
            file = target / key.removeprefix(f"{PREFIX}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(get(key))

        level_memory(lake.root, size)
        return seconds_of(fetch), len(scan(target).files)

    def _all(self, move: Callable[[str], None], names: list[str]) -> None:
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in pool.map(move, names):
                pass

    def putter(self, lake: LakeRepository, branch: str) -> Callable[[str, Path], object]:
        raise NotImplementedError

    def getter(self, lake: LakeRepository, ref: str) -> Callable[[str], bytes]:
        raise NotImplementedError


class Obstore(_ObjectMover):
    """obstore on the S3 gateway, as bare as it can be: nothing is checked or kept."""

    def putter(self, lake: LakeRepository, branch: str) -> Callable[[str, Path], object]:
        store = _gateway(lake)
        return lambda key, file: obstore.put(store, f"{branch}/{key}", file)

    def getter(self, lake: LakeRepository, ref: str) -> Callable[[str], bytes]:
        store = _gateway(lake)
        return lambda key: bytes(obstore.get(store, f"{ref}/{key}").bytes())


def _gateway(lake: LakeRepository) -> S3Store:
    connection = lake.connection
    return S3Store(
        lake.repository,
        endpoint=connection.gateway,
        access_key_id=connection.access_key_id,
        secret_access_key=connection.secret_access_key.get_secret_value(),
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


class Sdk(_ObjectMover):
    """LakeFS's Python SDK on one thread, as a script would use it."""

    threads = 1

    def putter(self, lake: LakeRepository, branch: str) -> Callable[[str, Path], object]:
        upload = lake.client.objects_api.upload_object
        return lambda key, file: upload(lake.repository, branch, key, content=file.read_bytes())

    def getter(self, lake: LakeRepository, ref: str) -> Callable[[str], bytes]:
        get = lake.client.objects_api.get_object
        return lambda key: bytes(get(lake.repository, ref, key))


@dataclass(frozen=True, slots=True)
class FolderMoved:
    """A contestant: a folder that is new in each round goes up, and comes down again."""

    mover: Mover
    lake: LakeRepository
    # Of an empty tree.
    base: str
    # Gives the folder of a round, the same to all contestants.
    folder: Callable[[int], Path]

    def __call__(self, number: int) -> dict[str, float]:
        folder = self.folder(number)
        up, commit = self.mover.up(self.lake, self.base, folder)
        # As Perago's own attempt directories: no contestant pays for what a round before removed.
        spread_folders(self.lake.root)
        target = self.lake.root / f"down-{uuid.uuid4().hex}"
        target.mkdir()
        try:
            down, came = self.mover.down(self.lake, commit, target, size_of(folder))
        finally:
            shutil.rmtree(target)
        sent = len(scan(folder).files)
        if came != sent:
            raise AssertionError(f"only {came} of {sent} files came down")
        return {"up": up, "down": down}


@dataclass
class Folders:
    """Makes the folder of a round: random files, so that nothing of a round before is found."""

    root: Path
    count: int
    size: int
    _last: tuple[int, Path] | None = None

    def __call__(self, number: int) -> Path:
        if self._last is None or self._last[0] != number:
            if self._last is not None:
                shutil.rmtree(self._last[1])
            self._last = number, fill(self.root / f"round-{number}", self.count, self.size)
        return self._last[1]


def fill(folder: Path, count: int, size: int) -> Path:
    """Write random files, at most 500 in a folder; their names are those of ``path_of``."""
    for number in range(count):
        path = folder / path_of(number)
        if number % 500 == 0:
            path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            for start in range(0, size, 1 << 20):
                file.write(os.urandom(min(1 << 20, size - start)))
    return folder


def path_of(number: int) -> str:
    return f"{number // 500:03}/{number:06}"
