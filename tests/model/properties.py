"""What must hold, numbered like the invariants of the protocol."""

from __future__ import annotations

from model.rules import Rules, Scenario
from model.state import (
    COMPLETES,
    EXISTING,
    LANDED,
    LANDS,
    MERGE,
    NOT_LANDED,
    RELOCATION,
    SAYS_NOT_LANDED,
    SAYS_SO_LATER,
    STALE,
    UNEXPLAINED,
    WITHDRAWS,
    Event,
    State,
)
from model.transaction import Transaction

# What the protocol claims, by the numbers of its invariants, and what goes further.
CLAIMED = frozenset({"1", "3", "4", "5", "7", "9", "10", "outcome"})
FURTHER = frozenset({"1 always", "7 by count", "10 always", "live licence"})


class Watched(Transaction):
    """Name the properties that a move violates, among those that are watched."""

    def __init__(
        self,
        scenario: Scenario,
        rules: Rules | None = None,
        watched: frozenset[str] = CLAIMED,
    ) -> None:
        super().__init__(scenario, rules or Rules())
        self.watched = watched

    def objection(self, before: State, event: Event, after: State) -> str | None:
        for broken in self.objections(before, event, after):
            if broken in self.watched:
                return broken
        return None

    def objections(self, before: State, event: Event, after: State) -> list[str]:
        text, i, k = event
        if text == LANDS[MERGE] or text == LANDS[RELOCATION]:
            return self.against_landing(before, i, after)
        if text == COMPLETES:
            return self.against_completion(before, i)
        if text in (SAYS_NOT_LANDED, SAYS_SO_LATER):
            request = before.executions[i].request
            landed = request.phase == LANDED and request.commit in self.lineage[before.head]
            return ["outcome"] if landed else []
        if text == WITHDRAWS and self.is_current(before, k):
            return ["live licence"] if before.executions[k].licence in EXISTING else []
        return []

    def against_landing(self, before: State, i: int, after: State) -> list[str]:
        scenario = self.scenario
        e = after.executions[i]
        merge = e.request.moves_by == MERGE
        broken: list[str] = []
        if after.head != e.ref and self.commits[after.head].content != self.result(i, e.ref):
            # A soft fence cannot keep others off; then the read-back must see it (3).
            outsider = scenario.person != "never" and not (merge and scenario.hard_fence)
            broken.append("1 always" if outsider or scenario.stray_writer else "1")
        if e.at == STALE:
            broken.append("4")
        if e.at == UNEXPLAINED:
            broken.append("5")
        if merge and scenario.hard_fence and before.head != e.ref:
            broken.append("7")
        if merge and sum(x.request[:2] == (MERGE, LANDED) for x in after.executions) > 1:
            broken.append("7 by count")
        if i <= before.completed:
            broken.append("9")
        if self.has_person(before.head) and not self.has_person(after.head):
            # Relocation is unconditional: what comes after the last look at HEAD is in its window.
            kept = scenario.replacement == "head-state" and before.person_kept_by_tag
            seen = e.request.over_person
            broken.append("10" if seen and not kept else "10 always")
        if e.at == NOT_LANDED:
            broken.append("outcome")
        return broken

    def against_completion(self, before: State, i: int) -> list[str]:
        e = before.executions[i]
        output = self.output(before, i)
        commit = self.commits[output]
        broken: list[str] = []
        one_past = commit.parent == e.ref and commit.content == self.result(i, e.ref)
        displaced = before.head != output and self.scenario.person == "never"
        if (output != e.ref and not one_past) or displaced:
            broken.append("3")
        if before.claim != i:
            broken.append("4")
        return broken
