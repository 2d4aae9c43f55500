"""A LakeFS whose S3 gateway has a host of its own, with a certificate of a private authority."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from perago import dev
from perago.connections import Authorities, LakeFSConnection
from perago.errors import BackendError, ConfigurationError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.gateway import GatewayClient
from perago.lakefs.objects import LakeFSObjects
from perago.lakefs.store_serializer import LakeFSStoreSerializer
from perago.protocol.events import PhaseEvent
from perago.protocol.workspace import StagingBranch
from perago.servers.spark import ConnectSettings
from perago.settings import Settings
from perago.spark.session import close_session, open_session
from perago.transfer.inventory import Source
from perago.transfer.on_spark.engine import SparkEngine
from perago.transfer.partition import Bounds
from perago.wiring.connections import lakefs_connection
from support.connect import Serve
from support.real_world import SEED, RealWorld
from support.tls import Front, https_before

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def front(endpoints: dev.Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("tls")
    with https_before(endpoints.lakefs.endpoint, folder) as running:
        yield running


def settings(front: Front, endpoints: dev.Endpoints) -> Settings:
    lakefs = endpoints.lakefs
    return Settings(
        lakefs_endpoint=f"{front.url}/api/v1",
        lakefs_access_key_id=lakefs.access_key_id,
        lakefs_secret_access_key=SecretStr(lakefs.secret_access_key),
        ca_bundle=front.ca_bundle,
    )


def test_every_client_of_lakefs_trusts_the_authority_that_is_named(
    front: Front, endpoints: dev.Endpoints, world: RealWorld
) -> None:
    connection = lakefs_connection(settings(front, endpoints))
    control, objects = LakeFSControl(connection), LakeFSObjects(connection)
    control.check_access()
    found = {item.key: item.size for item in objects.list(world.repository, "main", "data/")}
    assert found == {key: len(text) for key, text in SEED.items() if key.startswith("data/")}
    pieces = GatewayClient(connection).read(world.repository, "main", "data/a.txt", 5)
    assert b"".join(pieces) == b"alpha"
    control.close()
    objects.close()


def test_without_it_nobody_does(front: Front, endpoints: dev.Endpoints, world: RealWorld) -> None:
    lakefs = endpoints.lakefs
    secret = SecretStr(lakefs.secret_access_key)
    connection = LakeFSConnection(front.url, lakefs.access_key_id, secret, retry_seconds=1.0)
    control = LakeFSControl(connection)
    with pytest.raises(BackendError):
        control.check_access()
    with pytest.raises(BackendError):
        list(GatewayClient(connection).read(world.repository, "main", "data/a.txt", 5))
    control.close()


def test_objects_go_through_a_gateway_with_a_host_of_its_own(
    front: Front, endpoints: dev.Endpoints, world: RealWorld
) -> None:
    lakefs = endpoints.lakefs
    connection = LakeFSConnection(
        f"{lakefs.endpoint}/api/v1/",
        lakefs.access_key_id,
        SecretStr(lakefs.secret_access_key),
        s3_endpoint=f"{front.url}/",
        authorities=Authorities.read(front.ca_bundle),
    )
    assert (connection.server, connection.gateway) == (lakefs.endpoint, front.url)
    pieces = GatewayClient(connection).read(world.repository, "main", "data/a.txt", 5)
    assert b"".join(pieces) == b"alpha"


@pytest.mark.spark
@pytest.mark.slow
def test_spark_trusts_it_too(
    front: Front, endpoints: dev.Endpoints, world: RealWorld, serve: Serve
) -> None:
    server = serve(
        ConnectSettings("tls", lakefs_connection(settings(front, endpoints)), "local[1]")
    )
    session = open_session(server.remote, uuid.uuid4().hex)
    rows = session.read.text(f"s3a://{world.repository}/main/data/a.txt").collect()
    close_session(session)
    assert [row.value for row in rows] == ["alpha"]


@pytest.mark.slow
@pytest.mark.spark
def test_spark_moves_a_workspace_through_it_where_the_file_does_not_exist(
    front: Front, endpoints: dev.Endpoints, world: RealWorld, serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "authority.pem"
    file.write_bytes(front.ca_bundle.read_bytes())
    connection = lakefs_connection(settings(front, endpoints))
    server = serve(ConnectSettings("tls-transfer", connection, "local[1]"))
    private = replace(connection, authorities=Authorities.read(file))
    # Tasks on other machines have only the text.
    file.unlink()
    staging = StagingBranch(world.repository, "staged-through-tls")
    world.servers.control.create_branch(staging, world.ref)
    data = tmp_path / "attempt" / "data"
    data.mkdir(parents=True)
    events: list[PhaseEvent] = []
    session = open_session(server.remote, uuid.uuid4().hex)
    with closing(LakeFSObjects(private)) as objects:
        engine = SparkEngine(
            objects,
            LakeFSStoreSerializer(private),
            lambda: session,
            events.append,
            compared_here=Bounds(objects=1),
        )
        try:
            fetched = engine.fetch(Source(world.repository, world.ref, "data"), data)
            assert (data / "a.txt").read_text() == "alpha"
            (data / "a.txt").write_text("changed")
            (data / "sub" / "b.txt").unlink()
            engine.stage(fetched.changes(0), staging, data)
        finally:
            close_session(session)
    assert {event.phase for event in events} == {"download", "diff", "stage"}
    listing = world.servers.objects.list(world.repository, staging.branch, "data/")
    assert [(item.key, item.size) for item in listing] == [("data/a.txt", 7)]


def test_a_file_without_a_certificate_is_a_configuration_error(tmp_path: Path) -> None:
    file = tmp_path / "empty.pem"
    file.touch()
    with pytest.raises(ConfigurationError, match="holds no certificate"):
        Authorities.read(file)
