"""A real LakeFS whose presigned addresses lead to its S3 store through a fault proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

from perago import dev
from perago.lakefs.objects import LakeFSObjects
from perago.testing import FaultProxy
from support.lake_servers import lakefs_on_s3
from support.real_world import Servers


class PresigningServers(Servers):
    """Clients of such a LakeFS and of Conductor, which do not use its addresses themselves.

    There is one proxy for all tests: where addresses lead to is set when LakeFS starts.
    """

    def __init__(self, endpoints: dev.Endpoints, store: FaultProxy) -> None:
        super().__init__(endpoints)
        self.objects.close()
        self.objects = LakeFSObjects(replace(self.connection, transfer="gateway"))
        self.store = store


@contextmanager
def presigning_servers(endpoints: dev.Endpoints, folder: Path) -> Iterator[PresigningServers]:
    """Start the LakeFS and its store; Conductor is the one of ``endpoints``."""
    proxies: list[FaultProxy] = []
    with ExitStack() as held:

        def addressed(store: str) -> str:
            proxies.append(held.enter_context(FaultProxy(store)))
            return proxies[0].url

        server = held.enter_context(lakefs_on_s3(folder, addressed=addressed))
        both = endpoints.model_copy(update={"lakefs": server.endpoint})
        yield held.enter_context(closing(PresigningServers(both, proxies[0])))
