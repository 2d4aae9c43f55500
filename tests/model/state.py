"""The state of one target branch, its executions and their requests: small hashable tuples."""

from __future__ import annotations

from typing import NamedTuple


class Commit(NamedTuple):
    parent: int
    # A bit for every execution (and other writer) whose change is in it.
    content: int
    maker: int
    how: str


class Request(NamedTuple):
    """A request to move the target. Every execution sends at most one."""

    moves_by: str = ""
    phase: str = "none"
    # While resolved: the HEAD that the conditional write expects.
    basis: int = -1
    # While resolved: the source; when landed: the commit that became HEAD.
    commit: int = -1
    # A person's commit was on the target when HEAD was last to be checked.
    over_person: bool = False


class Execution(NamedTuple):
    at: str = "idle"
    # The commit that is this execution's input.
    ref: int = -1
    licence: str = "none"
    # The commit at HEAD that the plan was made for, then the one that was published.
    plan: int = -1
    # Executions whose licences are still to be deleted, and whose landing is to be waited for.
    to_withdraw: int = 0
    to_await: int = 0
    request: Request = Request()


class State(NamedTuple):
    head: int
    # The execution whose claim Conductor holds.
    claim: int
    # The last execution whose completion Conductor accepted.
    completed: int
    person_to_come: bool
    stray_to_come: bool
    person_kept_by_tag: bool
    executions: tuple[Execution, ...]


class Event(NamedTuple):
    text: str
    who: int = -1
    other: int = -1

    def __str__(self) -> str:
        return self.text.format(
            it=f"execution {self.who + 1}",
            its=f"execution {self.who + 1}'s",
            other=f"execution {self.other + 1}",
        )


Move = tuple[Event, State]


def change(s: State, i: int, e: Execution) -> State:
    executions = s.executions
    return s._replace(executions=(*executions[:i], e, *executions[i + 1 :]))


ROOT = 0  # the commit that is the first task's input
AT_INPUT, COMMITTED, SPOILED = "at the input", "committed", "spoiled"
EXISTING = frozenset({AT_INPUT, COMMITTED, SPOILED})
# A branch deleted by its owner when nothing was under way, or else with a tag that tells others.
CLEANED, WITHDRAWN = "cleaned", "withdrawn"
SENT, RESOLVED, LANDED, REFUSED, DROPPED = "sent", "resolved", "landed", "refused", "dropped"
MERGE, RELOCATION = "merge", "relocation"

COMPLETED = "completed"
STALE = "stale"
UNEXPLAINED = "publish fence error"
NOT_LANDED = "not landed"
FAILURES = frozenset(
    {STALE, UNEXPLAINED, NOT_LANDED, "failed", "refused", "mixed publication", "unknown outcome"}
)
OUTCOMES = FAILURES | {COMPLETED, "claim lost", "post ignored"}
# Where the outcome of the publication is known, and the branch is cleaned up.
AFTERWARDS = frozenset({"read the claim", "post"}) | FAILURES - {"unknown outcome"}
BEFORE_REQUEST = frozenset(
    {
        "stage",
        "second fence",
        "list branches",
        "list tags",
        "withdraw licences",
        "read HEAD",
        "third fence",
        "read HEAD again",
    }
)

LANDS = {
    MERGE: "{its} merge lands: LakeFS writes the target",
    RELOCATION: "{its} relocation lands: LakeFS writes the target",
}
COMPLETES = "{it} posts COMPLETED and Conductor accepts it"
SAYS_NOT_LANDED = "{it} reads HEAD and reports that its request has not landed"
SAYS_SO_LATER = "{it} sees that the time is over and reports that its request has not landed"
WITHDRAWS = "{it} withdraws the licence of {other}"
