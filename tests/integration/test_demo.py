"""``make demo`` as a user runs it, on a small day: what it prints, and that nothing stays."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from support.example_runs import run_example

pytestmark = [
    *[pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(660)],
    *[pytest.mark.slow, pytest.mark.alone],
]

PHASES = {
    "ingest_events": ("download", "body", "stage", "publish"),
    "clean_events": ("pre_guardrails", "body", "diff", "post_guardrails", "publish"),
    "aggregate_sales": ("pre_guardrails", "body", "diff", "post_guardrails", "publish"),
    "quality_report": ("download", "body"),
}
# Settings of a worker that would spoil it, if the demonstration took them over.
FOREIGN = {"PERAGO_REPLACEMENT": "off", "PERAGO_LOG_LEVEL": "error"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def printed(place: Path) -> str:
    """What the demonstration printed; its temporary files are below ``place``."""
    (place / "tmp").mkdir()
    command = ["demo.py", "--rows", "5000", "--out", str(place / "out")]
    return run_example(command, {**FOREIGN, "TMPDIR": str(place / "tmp")}, place, 600)


def attempts(printed: str) -> list[tuple[str, int, str, str]]:
    """Task, attempt, input ref and text of every attempt, in the order of the output."""
    head = re.compile(r"^   (\w+), attempt (\d), from (\w{10})$", re.MULTILINE)
    heads = list(head.finditer(printed))
    ends = [found.start() for found in heads[1:]] + [len(printed)]
    return [
        (found[1], int(found[2]), found[3], printed[found.end() : end])
        for found, end in zip(heads, ends, strict=True)
    ]


def published(text: str) -> tuple[str, str]:
    """Input and published ref of an attempt."""
    [(before, after)] = re.findall(
        r"^      (\w{10}) → (\w{10})   \d+ objects?, [\d.]+ [kM]?B$", text, re.MULTILINE
    )
    return before, after


def test_every_attempt_is_shown_with_phases_and_refs(printed: str) -> None:
    seen = attempts(printed)
    assert [(task, number) for task, number, _, _ in seen] == [
        ("ingest_events", 1),
        ("clean_events", 1),
        ("aggregate_sales", 1),
        ("quality_report", 1),
        ("ingest_events", 1),
        ("clean_events", 1),
        ("clean_events", 2),
        ("aggregate_sales", 1),
        ("quality_report", 1),
    ]
    for task, _, ref, text in seen:
        for phase in PHASES[task]:
            assert re.search(rf"\b{phase} +\d+\.\d\d s", text), (task, phase, text)
        if task == "quality_report":
            assert f"{ref} stays: nothing is published" in text
            assert "checks 6 of 6 hold" in text
        else:
            assert published(text)[0] == ref


def test_each_task_starts_where_the_one_before_ended(printed: str) -> None:
    ingest, clean, sales, report = (item[3] for item in attempts(printed)[:4])
    assert published(ingest)[1] == published(clean)[0]
    assert published(clean)[1] == published(sales)[0]
    assert f"{published(sales)[1]} stays" in report


def test_the_publication_of_the_killed_worker_is_replaced(printed: str) -> None:
    killed, retry = (item[3] for item in attempts(printed)[5:7])
    before, abandoned = published(killed)
    assert "COMPLETED" not in killed
    assert "KILLED" in killed
    assert f"LakeFS     main is at {abandoned}" in killed
    assert "Conductor  attempt 1 is IN_PROGRESS" in killed
    again, new = published(retry)
    assert again == before
    assert new != abandoned
    assert f"main is at {abandoned}, one commit past the input: ReplaceAbandoned" in retry
    assert re.search(r"publish +\d+\.\d\d s   replaced", retry)


def test_it_ends_with_the_history_and_where_to_look_next(printed: str, place: Path) -> None:
    abandoned = published(attempts(printed)[5][3])[1]
    new = published(attempts(printed)[6][3])[1]
    history = printed.partition("The history of branch main")[2]
    commits = re.findall(r"^   ●   (\w{10})  (.*)$", history, re.MULTILINE)
    assert len(commits) == 9  # the repository's own, and for each day: export, three tasks
    [replaced] = [text for ref, text in commits if ref == new]
    assert re.search(rf"attempt 2 +replaced {abandoned}$", replaced)
    assert re.search(rf"│ ○ {abandoned} .*attempt 1 +abandoned", history)
    assert re.search(rf"perago-replaced-\d{{8}}-{abandoned}", history)
    for day in ("2026-03-13", "2026-03-14"):
        page = place / "out" / f"report-{day}.html"
        assert str(page.relative_to(place)) in history
        assert "<svg" in page.read_text()


def test_nothing_of_it_stays_but_the_reports(printed: str, place: Path) -> None:
    assert list((place / "tmp").iterdir()) == []
    left = [
        process.info
        for process in psutil.process_iter(["pid", "cmdline"])
        if any(str(place) in part for part in process.info["cmdline"] or [])
    ]
    assert left == []
    assert "secret" not in printed.lower()
