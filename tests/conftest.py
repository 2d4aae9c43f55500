"""What every test may ask for: the run's servers, worlds on them, and workers in them."""

from __future__ import annotations

import gc
import os
import signal
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from perago import dev, masking
from perago.connections import LakeFSConnection
from support.command_line import close_server
from support.durations import BUDGET_SECONDS, over_budget
from support.go_programs import VERSITYGW
from support.lake_servers import BUCKET
from support.shared_stack import Asked, StackKeeper, ask_keeper

# Imported by the fixtures themselves: they load both SDKs, which most tests do not need.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.lake_repository import LakeRepository
    from support.real_world import RealWorld, Servers
    from support.spark_world import RealSparkWorld
    from support.workers import WorkerSite

# A test has a time limit of its own; how long one example takes depends on who else runs.
hypothesis.settings.register_profile("perago", deadline=None)
hypothesis.settings.load_profile("perago")

_SERVER_MARKS = ("servers", "spark")
_WHILE_SERVERS_START = "tests/unit/adapters/"
# A developer's shortcut: the JSON of `perago dev up --detach --json`, to use a running stack.
_ENDPOINTS = "PERAGO_TEST_ENDPOINTS"
_KEEPER = pytest.StashKey[StackKeeper]()
_WORKER_INPUT = "perago_stack_keeper"


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that the run was started with keeps servers."""
    # What is imported and collected stays: there is no garbage in it to look for, again and again.
    gc.disable()
    # A run in the background of a script, or under nohup, has these ignored, and so would have all
    # that the tests start: a closed terminal or Ctrl-C would end none of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        config.stash[_KEEPER] = StackKeeper()
        config.add_cleanup(config.stash[_KEEPER].close)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell each xdist worker where to ask for the servers."""
    node.workerinput[_WORKER_INPUT] = node.config.stash[_KEEPER].listen()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share tests out one by one, except for those that share something expensive."""
    from support.scheduling import InGroups

    # In the order they are collected in. With the largest groups first, all that starts servers of
    # its own would do so at the same moment.
    config.option.loadscopereorder = False
    return InGroups(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with tests that need no server and mostly wait, while the servers start."""
    items.sort(key=lambda item: not item.nodeid.startswith(_WHILE_SERVERS_START))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build and fetch the servers before the first test, whose timeout must not count that."""
    gc.freeze()
    gc.enable()
    marks = {
        mark for item in session.items for mark in _SERVER_MARKS if item.get_closest_marker(mark)
    }
    if not marks or session.config.option.collectonly or _ENDPOINTS in os.environ:
        return
    spark = "spark" in marks
    dev.obtain(spark=spark)
    if any(item.get_closest_marker("s3") for item in session.items):
        VERSITYGW.obtain()
    if hasattr(session.config, "workerinput"):
        start = partial(_endpoints, session.config, spark=spark)
        threading.Thread(target=start, name="start servers", daemon=True).start()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that are over the budget of durations. It fails nothing: machines differ."""
    reports = (report for each in terminalreporter.stats.values() for report in each)
    if not (found := over_budget(reports)):
        return
    title = f"calls of more than {BUDGET_SECONDS:.0f} s, neither `slow` nor `only_proof`"
    terminalreporter.section(title)
    for seconds, test in found:
        terminalreporter.write_line(f"{seconds:7.1f} s  {test}")


@pytest.fixture(scope="session", autouse=True)
def _commands_end() -> Iterator[None]:
    """End the process that runs commands before the coverage of all processes is put together."""
    yield
    close_server()


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> None:
    """What one test has masked is not masked in the texts of those after it."""
    masking._of_this_process = masking.Masker()


def _endpoints(config: pytest.Config, *, spark: bool) -> dev.Endpoints:
    if given := os.environ.get(_ENDPOINTS):
        endpoints = dev.Endpoints.model_validate_json(given)
        if endpoints.spark is not None or not spark:
            return endpoints
    keeper = config.stash.get(_KEEPER, None)
    if keeper is not None:
        return keeper.stack(spark=spark).endpoints
    address, key = config.workerinput[_WORKER_INPUT]  # type: ignore[attr-defined]
    asked: Asked = "spark" if spark else "stack"
    return dev.Endpoints.model_validate_json(ask_keeper(address, key, asked))


@pytest.fixture(scope="session")
def own_stack() -> Iterator[dev.Stack]:
    """Servers that no other process of the run uses, for tests that stop and start them."""
    keeper = StackKeeper()
    yield keeper.stack()
    keeper.close()


@pytest.fixture(scope="session")
def endpoints(pytestconfig: pytest.Config) -> dev.Endpoints:
    """Where LakeFS and Conductor are, for tests that leave them running."""
    # Whether Spark runs by now depends on the order of the tests, which must not matter.
    return _endpoints(pytestconfig, spark=False).model_copy(update={"spark": None})


@pytest.fixture(scope="session")
def spark_endpoints(pytestconfig: pytest.Config) -> dev.Endpoints:
    """The same with Spark, which is started when a test first asks for it."""
    return _endpoints(pytestconfig, spark=True)


@pytest.fixture(scope="session")
def spark_remote(spark_endpoints: dev.Endpoints) -> str:
    assert spark_endpoints.spark is not None
    return spark_endpoints.spark.remote


@pytest.fixture(scope="session")
def connection(endpoints: dev.Endpoints) -> LakeFSConnection:
    """How clients in this process reach LakeFS."""
    return endpoints.lakefs.connection


@pytest.fixture(scope="session")
def s3_connection(pytestconfig: pytest.Config) -> LakeFSConnection:
    """The same for a LakeFS on an S3 store; its repositories are on ``s3://BUCKET/…``."""
    keeper = pytestconfig.stash.get(_KEEPER, None)
    if keeper is not None:
        return keeper.lake_on_s3().connection
    address, key = pytestconfig.workerinput[_WORKER_INPUT]  # type: ignore[attr-defined]
    return dev.LakeFSEndpoint.model_validate_json(ask_keeper(address, key, "s3")).connection


@pytest.fixture(scope="session")
def servers(endpoints: dev.Endpoints) -> Iterator[Servers]:
    """Clients of LakeFS and Conductor, opened once."""
    from support.real_world import Servers

    clients = Servers(endpoints)
    yield clients
    clients.close()


@pytest.fixture
def world(servers: Servers, tmp_path: Path) -> RealWorld:
    """A repository and a task type of the test's own, on the real servers."""
    from support.real_world import RealWorld

    return RealWorld(servers, tmp_path / "workspaces")


@pytest.fixture
def spark_world(servers: Servers, spark_remote: str, tmp_path: Path) -> RealSparkWorld:
    """The same with a small table, and with sessions on the real Spark."""
    from support.spark_world import RealSparkWorld

    return RealSparkWorld(servers, tmp_path / "workspaces", remote=spark_remote)


@pytest.fixture
def lake(connection: LakeFSConnection, tmp_path: Path) -> LakeRepository:
    """An empty repository, for tests of moving objects."""
    from support.lake_repository import a_new_repository

    return a_new_repository(connection, tmp_path)


@pytest.fixture
def lake_on_s3(s3_connection: LakeFSConnection, tmp_path: Path) -> LakeRepository:
    """An empty repository of a LakeFS that gives out presigned addresses."""
    from support.lake_repository import a_new_repository

    return a_new_repository(s3_connection, tmp_path, f"s3://{BUCKET}/")


@pytest.fixture
def site(servers: Servers, endpoints: dev.Endpoints, tmp_path: Path) -> Iterator[WorkerSite]:
    """Where a test starts workers: gates before the servers, and no worker left behind."""
    from support.workers import site_on

    with site_on(servers, endpoints, tmp_path) as place:
        yield place


@pytest.fixture(scope="session")
def worker_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This code as a zip, so that Spark's workers run it and not what is installed."""
    modules = tmp_path_factory.mktemp("modules") / "perago.zip"
    # Compiled: what comes as text from a zip is compiled anew in each of Spark's processes.
    with zipfile.PyZipFile(str(modules), "w") as bundle:
        bundle.writepy(str(Path(dev.__file__).parent))
    return modules


@pytest.fixture(scope="session")
def spark_session(spark_remote: str, worker_modules: Path) -> Iterator[SparkSession]:
    """A session whose workers run this code."""
    from pyspark.sql import SparkSession

    from perago.spark.session import close_session

    session = SparkSession.builder.remote(spark_remote).create()
    try:
        session.addArtifacts(str(worker_modules), pyfile=True)
        yield session
    finally:
        close_session(session)
