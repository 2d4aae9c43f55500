"""LakeFS: its commits, and what it does with a request to move the target, however late."""

from __future__ import annotations

from model.rules import Rules, Scenario
from model.state import (
    DROPPED,
    EXISTING,
    LANDED,
    LANDS,
    MERGE,
    REFUSED,
    RESOLVED,
    SENT,
    SPOILED,
    Commit,
    Event,
    Execution,
    Move,
    Request,
    State,
    change,
)


class Lake:
    """Know every commit by a number, and carry out merges and relocations."""

    def __init__(self, scenario: Scenario, rules: Rules) -> None:
        self.scenario = scenario
        self.rules = rules
        self.count = len(scenario.executions)
        self.old, self.someone, self.stray = range(self.count, self.count + 3)
        self.commits: list[Commit] = []
        self.ids: dict[Commit, int] = {}
        self.lineage: list[frozenset[int]] = []
        self.commit(Commit(-1, 0, -1, "input"))

    def commit(self, commit: Commit) -> int:
        """Return the number of a commit; equal commits are one."""
        known = self.ids.get(commit)
        if known is None:
            known = self.ids[commit] = len(self.commits)
            self.commits.append(commit)
            above = self.lineage[commit.parent] if commit.parent >= 0 else frozenset()
            self.lineage.append(above | {known})
        return known

    # What execution i makes of the input ref: content, staged commit, and one with more on top.

    def result(self, i: int, ref: int) -> int:
        return self.commits[ref].content | 1 << i

    def staged(self, i: int, ref: int) -> int:
        if self.scenario.executions[i] == "no-op":
            return ref
        return self.commit(Commit(ref, self.result(i, ref), i, "staged"))

    def spoiled(self, i: int, ref: int) -> int:
        content = self.result(i, ref) | 1 << self.stray
        return self.commit(Commit(self.staged(i, ref), content, self.stray, "staged"))

    def has_person(self, head: int) -> bool:
        return any(self.commits[c].maker == self.someone for c in self.lineage[head])

    def resolve(self, s: State, i: int, e: Execution) -> list[Move]:
        """Resolve the source and read HEAD; the hook runs here, on that HEAD."""
        by = e.request.moves_by
        if self.rules.source_is_branch and e.licence not in EXISTING:
            event = Event("LakeFS refuses {its} " + by + ": its source is gone", i)
            return [(event, change(s, i, refused(e)))]
        spoiled = self.rules.source_is_branch and e.licence == SPOILED
        source = self.spoiled(i, e.ref) if spoiled else self.staged(i, e.ref)
        if by == MERGE and self.scenario.hard_fence and s.head != e.ref:
            event = Event("LakeFS refuses {its} merge: the hook expected another HEAD", i)
            return [(event, change(s, i, refused(e)))]
        if by == MERGE and not self.commits[source].content & ~self.commits[s.head].content:
            event = Event("LakeFS refuses {its} merge: there is nothing to merge", i)
            return [(event, change(s, i, refused(e)))]
        request = e.request._replace(phase=RESOLVED, basis=s.head, commit=source)
        event = Event("LakeFS resolves the source of {its} " + by + " and reads HEAD", i)
        return [(event, change(s, i, e._replace(request=request)))]

    def write(self, s: State, i: int, e: Execution) -> list[Move]:
        """Write the branch if HEAD has not moved, else start again; or the server dies."""
        request = e.request
        dropped = Request(request.moves_by, DROPPED)
        event = Event("LakeFS drops {its} " + request.moves_by + " without a reply", i)
        moves = [(event, change(s, i, e._replace(request=dropped)))]
        if s.head != request.basis and self.rules.conditional_write:
            event = Event("LakeFS finds HEAD moved under {its} " + request.moves_by, i)
            if self.rules.source_resolved_again:
                again = request._replace(phase=SENT, basis=-1, commit=-1)
            else:
                again = request._replace(basis=s.head)
            return [*moves, (event, change(s, i, e._replace(request=again)))]
        head = request.commit
        if request.moves_by == MERGE:
            # Disjoint changes: the worst case. Equal paths would be a conflict and refused.
            content = self.commits[request.basis].content | self.commits[head].content
            head = self.commit(Commit(request.basis, content, i, "merged"))
        landed = request._replace(phase=LANDED, basis=-1, commit=head)
        after = change(s._replace(head=head), i, e._replace(request=landed))
        return [*moves, (Event(LANDS[request.moves_by], i), after)]

    def person_commits(self, s: State) -> Move:
        content = self.commits[s.head].content
        if self.scenario.person == "changes":
            content |= 1 << self.someone
        head = self.commit(Commit(s.head, content, self.someone, "by hand"))
        return Event("a person commits on the target"), s._replace(head=head, person_to_come=False)


def refused(e: Execution) -> Execution:
    return e._replace(request=Request(e.request.moves_by, REFUSED))
