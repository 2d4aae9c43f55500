"""Which tests of a parallel run stay together in one process, because they share what is expensive.

By their ids, which is all that the process that shares tests out knows. (The groups of
pytest-xdist itself are written into an attribute of items that pytest 9.2 no longer reads.)
"""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

TOGETHER = {
    # Each stack takes a core to start: one at a time.
    "own stacks": r"integration/dev/|worker/test_outages\.py::test_conductor_",
    # One session, for which Spark keeps Python processes.
    "transfer on Spark": r"integration/spark_transfer/",
    "data guardrails": r"test_data_guardrails\.py::test_a_guardrail_that",
    # One Connect server of a worker, and one of a test module.
    "runtime": r"spark/test_runtime\.py",
    "private CA": r"spark/test_private_ca\.py",
    # One LakeFS that is stopped, and one on a store behind a proxy.
    "own LakeFS": r"worker/test_outages\.py::test_lakefs_",
    "past the gateway": r"transfer/test_past_the_gateway\.py",
    # One site, and one wheel, for all tests of them.
    "site": r"unit/test_docs\.py::test_.*(site|search)",
    "wheel": r"unit/test_package\.py",
    # One reading of all sources.
    "sources": r"unit/test_public_surface\.py",
    # One cluster of a master and two workers.
    "cluster": r"test_cluster|::test_a_cluster_|[\[-]cluster\]",
}


class InGroups(LoadScopeScheduling):  # type: ignore[misc]
    """Gives out one test after the other, and a group as a whole to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid) or nodeid


def group_of(nodeid: str) -> str | None:
    """The group a test belongs to; None for most."""
    return next((name for name, ids in TOGETHER.items() if re.search(ids, nodeid)), None)
