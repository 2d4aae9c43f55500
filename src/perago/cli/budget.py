"""``perago budget``: a publish budget from what a running worker measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.completion import complete_target
from perago.cli.json_option import AsJson

if TYPE_CHECKING:
    from perago.operations.budget import PublishTimes
    from perago.settings import Settings
    from perago.tasks.definition import TaskDefinition


def budget(
    module: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:task]", help="A task module.", autocompletion=complete_target
        ),
    ],
    metrics_url: Annotated[
        str | None,
        typer.Option(
            "--metrics-url",
            help="The worker's metrics.",
            show_default="http://PERAGO_METRICS_ADDRESS/metrics",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Propose a PublishBudget for each task from a running worker's publish times."""
    from perago.operations.budget import PublishTimes, fetch_metrics, read_publish_times
    from perago.settings import load_settings
    from perago.wiring.tasks import load_tasks

    settings = load_settings()
    definitions = load_tasks(settings, [module])
    times = read_publish_times(fetch_metrics(metrics_url or _default_url(settings)))
    proposals = [_proposal(item, times.get(item.name, PublishTimes())) for item in definitions]
    if as_json:
        output.emit_json({"tasks": proposals})
    else:
        for proposal in proposals:
            _print(proposal)
    if any(proposal["budget"] is None and proposal["publishes"] for proposal in proposals):
        raise typer.Exit(1)


def _default_url(settings: Settings) -> str:
    from perago.errors import ConfigurationError

    address = settings.metrics_address
    if address is None or not address.port:
        raise ConfigurationError(
            f"PERAGO_METRICS_ADDRESS is {address or 'off'}, so there is no address to read from",
            hint="Give the worker's own: --metrics-url http://HOST:PORT/metrics.",
        )
    return f"http://{address}/metrics"


def _proposal(definition: TaskDefinition, times: PublishTimes) -> dict[str, Any]:
    from perago.operations.budget import Refusal, propose_budget

    response = definition.controls.timeout.response_seconds
    publishes = definition.workspace is not None and not definition.workspace.read_only
    proposed: dict[str, Any] = {
        "task": definition.name,
        "publishes": publishes,
        "observations": times.count,
        "budget": None,
        "reason": None,
        "warning": None,
    }
    if not publishes:
        return proposed | {"reason": "this task publishes nothing"}
    found = propose_budget(times, response)
    if isinstance(found, Refusal):
        return proposed | {"reason": found.reason}
    if response < found.total_seconds:
        proposed["warning"] = (
            f"response_seconds is {response}, shorter than this budget's "
            f"{found.total_seconds:g} s; raise it in TimeoutPolicy"
        )
    return proposed | {"budget": asdict(found)}


def _print(proposal: dict[str, Any]) -> None:
    from perago.operations.budget import as_python
    from perago.tasks.controls import PublishBudget

    task = proposal["task"]
    if proposal["budget"] is None:
        output.note(f"{task}: no proposal: {proposal['reason']}")
        return
    output.say(f"# {task}: from {proposal['observations']} publications")
    for line in as_python(PublishBudget(**proposal["budget"])):
        output.say(line)
    if proposal["warning"]:
        output.note(f"{task}: warning: {proposal['warning']}")
