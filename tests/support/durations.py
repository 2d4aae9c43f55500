"""The budget of durations: which tests of a run took longer than a test without a mark may."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

BUDGET_SECONDS = 20.0
# Tests that may take longer: what `make test` leaves out, and the only proof of something.
MAY_BE_LONG = frozenset({"slow", "soak", "bench", "only_proof"})


def over_budget(reports: Iterable[Any]) -> list[tuple[float, str]]:
    """The calls that took too long, the longest first, each with the id of its test.

    Fixtures are not counted: they may start servers. In the reports that are given there may be
    warnings and other things that are no tests.
    """
    found = [
        (report.duration, report.nodeid)
        for report in reports
        if isinstance(report, pytest.TestReport)
        and report.when == "call"
        and report.duration > BUDGET_SECONDS
        and not MAY_BE_LONG & set(report.keywords)
    ]
    return sorted(found, reverse=True)
