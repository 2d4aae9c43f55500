"""A real standalone cluster for tests: a master and workers, each a process of its own.

Its Python is a plain environment with only what pyspark itself needs (pandas, pyarrow and their
needs): neither Perago nor pydantic nor obstore. What runs there came by Spark's own means.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perago.servers import loopback
from perago.servers.process import ProcessId, end
from perago.servers.server import listens
from perago.servers.spark import SMALL_JOBS
from perago.servers.toolchain import ivy, java, spark_jars
from perago.servers.watchdog import Watchdog
from perago.spark.packages import closure
from support.waiting import until
from support.workers import conf_variables

_CLIENT_NEEDS = ("pandas", "pyarrow")
_START_SECONDS = 90.0


@dataclass
class StandaloneCluster:
    """Made by :func:`standalone_cluster`; its processes are there to be killed by tests."""

    folder: Path
    python: Path
    port: int
    watchdog: Watchdog
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """What ``PERAGO_SPARK_MASTER`` is set to."""
        return f"spark://{loopback.LOOPBACK}:{self.port}"

    @property
    def conf(self) -> dict[str, str]:
        """Settings with which an application fits onto its small workers."""
        return {**SMALL_JOBS, "spark.executor.memory": "512m", "spark.executor.cores": "1"}

    def environment(self) -> dict[str, str]:
        """What a worker that uses the cluster is started with."""
        python = {"PYSPARK_PYTHON": str(self.python)}
        return {"PERAGO_SPARK_MASTER": self.url, **python, **conf_variables(self.conf)}

    def start_worker(self) -> None:
        """Start one more worker of one core, with bounded memory, and wait until it is known.

        Each has an address of its own: Spark never runs two copies of a task on one host.
        """
        name = f"worker-{len(self.workers)}"
        port = loopback.choose([name], {})[name]
        host = f"127.0.0.{len(self.workers) + 1}"
        arguments = ["--host", host, "--port", str(port), "--webui-port", "0"]
        arguments += ["--cores", "1", "--memory", "600m"]
        arguments += ["--work-dir", str(self.folder / name), self.url]
        worker = _start(self.watchdog, self.folder, name, "deploy.worker.Worker", arguments)
        self.workers.append(worker)
        log, known = self.folder / "master.log", len(self.workers)
        until(
            lambda: log.read_text().count("Registering worker") >= known,
            "the worker to register",
            _START_SECONDS,
        )

    def busy_workers(self) -> list[subprocess.Popen[bytes]]:
        """The workers that have an executor."""
        return [
            worker
            for worker in self.workers
            if (identity := ProcessId.of(worker.pid)) and identity.descendants()
        ]


@contextlib.contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2) -> Iterator[StandaloneCluster]:
    """Start a cluster of one-core workers, and end it with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    port = loopback.choose(["master"], {})["master"]
    watchdog = Watchdog(folder / "watchdog.log")
    cluster = StandaloneCluster(folder, plain_python(folder / "python"), port, watchdog)
    master: subprocess.Popen[bytes] | None = None
    try:
        arguments = ["--host", loopback.LOOPBACK, "--port", str(port), "--webui-port", "0"]
        master = _start(watchdog, folder, "master", "deploy.master.Master", arguments)
        until(lambda: listens(port), "the master to listen", _START_SECONDS)
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        started = [child for child in (master, *cluster.workers) if child is not None]
        end([identity for child in started if (identity := ProcessId.of(child.pid))])
        for child in started:
            child.wait(10)
        watchdog.release()


def _start(
    watchdog: Watchdog, folder: Path, name: str, main: str, arguments: list[str]
) -> subprocess.Popen[bytes]:
    found = java.find(java.SPARK_WITH_EXECUTORS)
    home = ivy.pyspark_home()
    env = {
        "PATH": os.environ["PATH"],
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": spark_jars.SCALA,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": loopback.LOOPBACK,
        "JAVA_HOME": str(found.home),
    }
    command = [str(found.executable), "-Xmx256m", *java.QUICK_START, "-cp", f"{home}/jars/*"]
    command += [f"org.apache.spark.{main}", *arguments]
    return watchdog.spawn(command, env=env, cwd=folder, log=folder / f"{name}.log")


def plain_python(folder: Path) -> Path:
    """An environment that has pandas and pyarrow and nothing of Perago; its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for distribution in sorted(closure(_CLIENT_NEEDS)):
        for file in importlib.metadata.files(distribution) or []:
            top = file.parts[0]
            source = Path(str(file.locate())).parents[len(file.parts) - 1] / top
            if top != ".." and not (site / top).exists() and source.exists():
                (site / top).symlink_to(source)
    return folder / "bin" / Path(sys.executable).name
