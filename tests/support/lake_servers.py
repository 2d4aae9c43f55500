"""LakeFS servers that belong to a test: with another batch delay, or on an S3 store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perago.servers import loopback
from perago.servers.lakefs import LakeFS
from perago.servers.server import Command, Server, environment_without, listens
from perago.servers.state import Secrets
from perago.servers.watchdog import Watchdog
from support.go_programs import VERSITYGW

BUCKET = "lakefs"
_REGION = "us-east-1"


class S3Store(Server):
    """An S3 server whose objects are files of a folder, each bucket a folder in it."""

    name = "versitygw"
    startup_seconds = 30.0

    def __init__(
        self, data_dir: Path, port: int, watchdog: Watchdog, *, key_id: str, secret: str
    ) -> None:
        super().__init__(data_dir, port, watchdog)
        self.key_id, self.secret = key_id, secret

    @property
    def endpoint(self) -> str:
        return f"http://{loopback.LOOPBACK}:{self.port}"

    def prepare(self) -> Command:
        program = VERSITYGW.obtain()
        buckets = self.home / "buckets"
        (buckets / BUCKET).mkdir(parents=True, exist_ok=True)
        # Credentials in variables: every user can see the arguments.
        keys = {"ROOT_ACCESS_KEY": self.key_id, "ROOT_SECRET_KEY": self.secret}
        address = f"{loopback.LOOPBACK}:{self.port}"
        # As stores do that are not asked otherwise.
        arguments = [str(program), "--port", address, "--keep-alive", "posix", str(buckets)]
        return Command(arguments, {**environment_without("ROOT_", "VGW_"), **keys})

    def healthy(self) -> bool:
        return listens(self.port)


class LakeFSOnS3(LakeFS):
    """LakeFS whose blocks are objects of an S3 store, so that it offers presigned addresses."""

    store: S3Store
    # Where its addresses lead to, if not to the store itself, and for how long they are good.
    presigned_endpoint: str | None = None
    presigned_seconds: int | None = None

    def _settings(self) -> dict[str, object]:
        store = self.store
        keys = {"access_key_id": store.key_id, "secret_access_key": store.secret}
        s3: dict[str, object] = {
            "force_path_style": True,
            "endpoint": store.endpoint,
            "region": _REGION,
            "discover_bucket_region": False,
            "credentials": keys,
        }
        if self.presigned_endpoint is not None:
            s3["pre_signed_endpoint"] = self.presigned_endpoint
        if self.presigned_seconds is not None:
            s3["pre_signed_expiry"] = f"{self.presigned_seconds}s"
        signing = {"secret_key": self._secrets.signing_key}
        blocks = {"type": "s3", "s3": s3, "signing": signing}
        return {**super()._settings(), "blockstore": blocks}


@contextmanager
def lakefs_server(folder: Path, *, max_batch_delay: str | None = "0s") -> Iterator[LakeFS]:
    """A LakeFS on a folder of its own, which is removed with the objects in it."""
    with _watched(folder) as watchdog:
        server = LakeFS(
            folder,
            _port("lakefs"),
            watchdog,
            secrets=Secrets.random().lakefs,
            max_batch_delay=max_batch_delay,
        )
        with _running(server):
            yield server


@contextmanager
def lakefs_on_s3(
    folder: Path,
    *,
    addressed: Callable[[str], str] | None = None,
    seconds: int | None = None,
) -> Iterator[LakeFSOnS3]:
    """The same on an S3 store of its own; its repositories are on ``s3://BUCKET/…``.

    ``addressed`` is given where the store is, and returns where presigned addresses lead to;
    they are good for so many ``seconds``.
    """
    secrets = Secrets.random().lakefs
    with _watched(folder) as watchdog:
        keys = {"key_id": "store", "secret": secrets.signing_key}
        store = S3Store(folder, _port("store"), watchdog, **keys)
        server = LakeFSOnS3(
            folder, _port("lakefs"), watchdog, secrets=secrets, max_batch_delay="0s"
        )
        server.store = store
        server.presigned_endpoint = addressed(store.endpoint) if addressed else None
        server.presigned_seconds = seconds
        with _running(store), _running(server):
            yield server


@contextmanager
def _watched(folder: Path) -> Iterator[Watchdog]:
    (folder / "logs").mkdir(parents=True)
    watchdog = Watchdog(folder / "watchdog.log")
    try:
        yield watchdog
    finally:
        watchdog.release()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(server: Server) -> Iterator[None]:
    try:
        server.start()
        yield
    finally:
        server.stop()


def _port(name: str) -> int:
    return loopback.choose([name], {})[name]
