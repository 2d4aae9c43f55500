"""``perago dev``: the embedded LakeFS, Conductor and Spark Connect servers."""

from __future__ import annotations

import shlex
import signal
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.dashboard import UiPort
from perago.cli.json_option import AsJson
from perago.signals import STOP_SIGNALS, heeded_stops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perago.dev import Endpoints, ServerStatus, Stack

dev_app = typer.Typer(
    rich_markup_mode=None,
    name="dev",
    help="Run real LakeFS, Conductor and Spark servers here.",
    no_args_is_help=True,
)

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where the stack keeps its data.", show_default="per user"),
]


class ServerName(StrEnum):
    """The servers of a stack."""

    LAKEFS = "lakefs"
    CONDUCTOR = "conductor"
    SPARK = "spark"


@dev_app.command()
def up(
    data_dir: DataDir = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave the servers running.")] = False,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Remove the data at the end.")
    ] = False,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Start no Spark server.")] = False,
    no_ui: Annotated[bool, typer.Option("--no-ui", help="Serve no dashboard.")] = False,
    ui_port: UiPort = None,
    as_json: AsJson = False,
) -> None:
    """Start the stack and show where its servers are; Ctrl-C stops it."""
    from perago.dev import Stack
    from perago.servers.control import already_up

    directory = _directory(data_dir)
    if (running := already_up(directory, spark=not no_spark)) is not None:
        stop = output.dev_commands("`perago dev down` stops it")
        output.note(f"the stack in {directory} runs already; {stop}")
        _show(running, as_json=as_json)
        return
    _interrupt_on_termination()
    try:
        stack = Stack.up(directory, spark=not no_spark, ephemeral=ephemeral)
    except KeyboardInterrupt:
        output.note("stopped before the stack was up")
        raise typer.Exit(130) from None
    if detach:
        _show(stack.detach(), as_json=as_json)
    else:
        _run_in_foreground(stack, as_json=as_json, ui=not no_ui, ui_port=ui_port)


@dev_app.command()
def status(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Name each server with its pid, port and health; exit code 3 unless all are healthy."""
    from perago.dev import Health, inspect

    directory = _directory(data_dir)
    servers = inspect(directory)
    if as_json:
        rows = [{"name": s.name, "pid": s.pid, "port": s.port, "health": s.health} for s in servers]
        output.emit_json({"data_dir": str(directory), "servers": rows})
    else:
        _show_status(servers)
    healths = {server.health for server in servers}
    if not healths <= {Health.HEALTHY, Health.OFF} or Health.HEALTHY not in healths:
        raise typer.Exit(3)


@dev_app.command()
def env(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Print shell exports that point clients to the stack."""
    from perago.servers.control import running_endpoints

    endpoints = running_endpoints(_directory(data_dir))
    if as_json:
        output.emit_json(endpoints.model_dump())
        return
    for name, value in endpoints.as_environment().items():
        output.say(f"export {name}={shlex.quote(value)}")


@dev_app.command()
def logs(
    server: Annotated[ServerName | None, typer.Argument(help="One server only.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print the logs: of one server, or of all with each line's server named."""
    from perago.servers.server import log_path

    directory = _directory(data_dir)
    if as_json:
        found = {name: log_path(directory, name) for name in ([server] if server else ServerName)}
        logs = {name.value: _lines(log) for name, log in found.items() if log.exists()}
        output.emit_json({"data_dir": str(directory), "logs": logs})
        return
    for name in [server] if server else list(ServerName):
        log = log_path(directory, name)
        if not log.exists():
            output.note(f"{name} has no log in {directory}")
            continue
        prefix = "" if server else f"{name} | "
        with log.open(errors="replace") as lines:
            for line in lines:
                output.say(prefix + line.rstrip("\n"))


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


@dev_app.command()
def down(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """End the stack's servers; their data stays unless the stack is ephemeral."""
    from perago.dev import shut_down

    directory = _directory(data_dir)
    ended = shut_down(directory)
    if as_json:
        output.emit_json({"data_dir": str(directory), "stopped": list(ended)})
        return
    output.say(f"stopped {', '.join(ended)}" if ended else f"no stack runs in {directory}")


def _directory(data_dir: Path | None) -> Path:
    from perago.dev import default_data_dir
    from perago.home import absolute

    if data_dir is not None:
        output.use_data_dir(data_dir)
    return absolute(data_dir or default_data_dir())


def _interrupt_on_termination() -> None:
    """Let SIGTERM and a closed terminal take the same orderly way out as Ctrl-C."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in heeded_stops():
        signal.signal(number, interrupt)


def _run_in_foreground(stack: Stack, *, as_json: bool, ui: bool, ui_port: int | None) -> None:
    from contextlib import ExitStack

    try:
        with ExitStack() as served:
            _show(stack.endpoints, as_json=as_json)
            if ui and not as_json:
                served.enter_context(_serve_dashboard(stack.endpoints, ui_port))
            output.note("the stack is up; Ctrl-C stops it")
            stack.watch()
    except KeyboardInterrupt:
        output.note("stopping …")
    finally:
        # A second Ctrl-C must not leave half of it running; every wait in here is bounded.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        stack.stop()


@contextmanager
def _serve_dashboard(endpoints: Endpoints, port: int | None) -> Iterator[None]:
    """Serve a dashboard of the stack's servers, and of the worker at the metrics address."""
    from contextlib import ExitStack, closing

    from pydantic import SecretStr

    from perago.cli.dashboard import serve_dashboard
    from perago.dashboard.sources import RemoteWorker
    from perago.errors import ConfigurationError
    from perago.settings import Settings, load_settings

    try:
        given = load_settings().metrics_address
    except ConfigurationError:
        # The stack needs no settings, and they may be what is being written.
        given = Settings().metrics_address
    settings = Settings(
        lakefs_endpoint=endpoints.lakefs.endpoint,
        lakefs_access_key_id=endpoints.lakefs.access_key_id,
        lakefs_secret_access_key=SecretStr(endpoints.lakefs.secret_access_key),
        conductor_server_url=endpoints.conductor.server_url,
    )
    with ExitStack() as opened:
        workers = []
        if given is not None and given.port:
            workers.append(opened.enter_context(closing(RemoteWorker(given))))
        opened.enter_context(serve_dashboard(settings, workers, port=port))
        yield


def _show(endpoints: Endpoints, *, as_json: bool) -> None:
    if as_json:
        output.emit_json(endpoints.model_dump())
        return
    output.say(f"lakefs     {endpoints.lakefs.endpoint}")
    output.say(f"conductor  {endpoints.conductor.server_url}")
    if endpoints.spark is not None:
        # Without its token: what is shown on a terminal ends up in scrollback and screenshots.
        output.say(f"spark      {endpoints.spark.remote.partition(';')[0]}")
    output.say(output.dev_commands("credentials: `perago dev env`"))


def _show_status(servers: list[ServerStatus]) -> None:
    from perago.dev import Health

    for server in servers:
        pid, port = server.pid or "-", server.port or "-"
        output.say(f"{server.name:<10} {server.health:<10} pid {pid:<8} port {port}")
    for server in servers:
        if server.health in (Health.DEAD, Health.UNHEALTHY):
            output.note(f"{server.name} is {server.health}{server.tail}")
