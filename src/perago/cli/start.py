"""``perago start``: run the tasks of modules as a Conductor worker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli.dashboard import UiPort
from perago.cli.extract import Targets

if TYPE_CHECKING:
    from perago.worker.service import OpenDashboard


def start(
    targets: Targets,
    executors: Annotated[
        int, typer.Option("-j", "--executors", min=1, max=256, help="Attempts run at once.")
    ] = 1,
    domain: Annotated[
        str | None, typer.Option("--domain", help="Poll this Conductor task domain only.")
    ] = None,
    register: Annotated[
        bool, typer.Option("--register", help="Register the TaskDefs before starting.")
    ] = False,
    master: Annotated[
        str | None,
        typer.Option("--master", help="Spark master for Spark tasks: local[*], spark://…, yarn."),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be repeated."),
    ] = None,
    packages: Annotated[
        str | None,
        typer.Option("--packages", help="Maven coordinates for Spark, separated by commas."),
    ] = None,
    py_files: Annotated[
        str | None,
        typer.Option("--py-files", help="Python files and zips for Spark, separated by commas."),
    ] = None,
    archives: Annotated[
        str | None,
        typer.Option("--archives", help="Archives for Spark, separated by commas: FILE[#FOLDER]."),
    ] = None,
    spark_ui: Annotated[
        bool, typer.Option("--spark-ui", help="Serve the UI of managed Spark, on loopback.")
    ] = False,
    ui: Annotated[bool, typer.Option("--ui", help="Serve the dashboard on loopback.")] = False,
    ui_port: UiPort = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Log JSON lines, and print the dashboard's address as one JSON object."
        ),
    ] = False,
) -> None:
    """Poll Conductor for tasks and run them, until SIGTERM, Ctrl-C or a closed terminal.

    The first signal stops polling and lets running attempts finish; the second hands them back.
    """
    from perago.spark.settings import SparkOptions
    from perago.worker.service import serve

    # As settings: executors read them as well.
    given = {
        "PERAGO_LOG_FORMAT": "json" if as_json else None,
        "PERAGO_SPARK_PY_FILES": py_files,
        "PERAGO_SPARK_ARCHIVES": archives,
    }
    os.environ.update({name: value for name, value in given.items() if value})
    raise typer.Exit(
        serve(
            targets,
            executors=executors,
            domain=domain,
            register=register,
            spark_options=SparkOptions(master, tuple(conf or ()), packages, spark_ui),
            open_dashboard=_dashboard(ui_port, as_json=as_json)
            if ui or ui_port is not None
            else None,
        )
    )


def _dashboard(port: int | None, *, as_json: bool) -> OpenDashboard:
    from perago.cli.dashboard import serve_dashboard

    return lambda settings, state: serve_dashboard(settings, [state], port=port, as_json=as_json)
