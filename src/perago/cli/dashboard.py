"""The dashboard of a command: `perago start --ui` and `perago dev up`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perago.observability.running import WorkerState
    from perago.settings import Settings

UiPort = Annotated[
    int | None,
    typer.Option(
        "--ui-port",
        min=0,
        max=65535,
        help="The dashboard's port; 0 takes a free one.",
        show_default="9465, or a free one",
    ),
]


@contextmanager
def serve_dashboard(
    settings: Settings, workers: Sequence[WorkerState], *, port: int | None, as_json: bool = False
) -> Iterator[str]:
    """Serve the dashboard during the block, and say where; yields the address without the token.

    With the token, it is said once, on stdout, and never logged.
    """
    # Imported here: starlette and uvicorn take longer than most commands.
    from perago.dashboard.server import Dashboard
    from perago.dashboard.sources import open_sources

    with Dashboard(open_sources(settings, workers), port=port) as dashboard:
        if as_json:
            output.emit_json({"dashboard": dashboard.url})
        else:
            output.say(f"dashboard  {dashboard.url}")
        yield dashboard.address
