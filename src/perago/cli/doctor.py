"""``perago doctor``: what is right and what is wrong with a set-up, and how to mend it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.completion import complete_target
from perago.cli.json_option import AsJson
from perago.masking import mask_secrets

if TYPE_CHECKING:
    from perago.operations.findings import Finding


def doctor(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE[:task]...",
            help="Tasks to compare with Conductor's TaskDefs.",
            autocompletion=complete_target,
        ),
    ] = None,
    try_in: Annotated[
        str | None,
        typer.Option(
            "--try",
            metavar="REPOSITORY",
            help="Try the rights of the LakeFS user there, on branches that are removed again.",
        ),
    ] = None,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark", help="Run a small job on Spark; managed Spark is started for that."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check settings, servers, Java, Spark, the workspace root, clocks and fences.

    One line each; exit code 1 when something has to be mended.
    """
    from perago.operations.doctor import Examination

    findings: list[Finding] = []
    for finding in Examination(targets or (), try_in, with_job=spark).findings():
        findings.append(finding)
        if not as_json:
            _show(finding)
    ok = all(finding.ok for finding in findings)
    if as_json:
        listed = [{**asdict(item), "text": mask_secrets(item.text)} for item in findings]
        output.emit_json({"ok": ok, "findings": listed})
    raise typer.Exit(0 if ok else 1)


def _show(finding: Finding) -> None:
    good, bad = ("✓", "✗") if _can_show("✓✗") else ("ok    ", "FAILED")
    output.say(f"{good if finding.ok else bad} {finding.check}: {mask_secrets(finding.text)}")
    if not finding.ok and finding.hint:
        output.say(f"  Try: {finding.hint}")


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
