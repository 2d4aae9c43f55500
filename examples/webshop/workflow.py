"""The pipeline as Conductor knows it: four tasks, each on the workspace that the last one left."""

from __future__ import annotations

from typing import Any

NAME = "webshop_day"


def definition() -> dict[str, Any]:
    """The workflow. Its input is a workspace, a day and a folder for the report."""
    return {
        "name": NAME,
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "data@example.com",
        "tasks": [
            _step("ingest", "ingest_events", after="workflow.input"),
            _step("clean", "clean_events", after="ingest.output"),
            _step("sales", "aggregate_sales", after="clean.output"),
            _step(
                "report",
                "quality_report",
                after="sales.output",
                folder="${workflow.input.folder}",
                commit="${sales.output.workspace.ref}",
                ingested="${ingest.output.result}",
                cleaned="${clean.output.result}",
            ),
        ],
    }


def _step(reference: str, task: str, *, after: str, **params: str) -> dict[str, Any]:
    """One task; ``after`` is where its workspace comes from, at the commit left there."""
    return {
        "name": task,
        "taskReferenceName": reference,
        "type": "SIMPLE",
        "inputParameters": {
            "workspace": f"${{{after}.workspace}}",
            "params": {"day": "${workflow.input.day}", **params},
        },
    }
