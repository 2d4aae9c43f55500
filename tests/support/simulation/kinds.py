"""Kinds of schedules: what must meet for a protection to matter, and seldom does by chance."""

from __future__ import annotations

from typing import Any

from support.simulation.choices import Choices

# Fields of a scenario, and what they are in place of what was drawn.
Kind = dict[str, Any]

# Requests that move the target go astray.
LATE: Kind = {"calls": 0.0, "moves": 0.3, "person": 0.0, "operator": 0.0}
# An operator has the task done again while a request of it is still landing.
REOPENED: Kind = {**LATE, "operator": 0.3}
# A person commits whenever it suits.
PERSON: Kind = {"hard": False, "person": 0.5, "moves": 0.15, "operator": 0.1}
# A reply is lost, and then the staging branch cannot be deleted either.
NO_CLEANUP: Kind = {**LATE, "cleanups": 3.0}

# Nothing goes wrong; what follows adds the one thing that shall.
_FAULTS = (
    "calls",
    "moves",
    "kills",
    "timeouts",
    "freezes",
    "cleanups",
    "slow",
    "person",
    "operator",
)
_CALM: Kind = {**dict.fromkeys(_FAULTS, 0.0), "recovery": "replace", "thaws": 0.05}
# A person commits while an execution that has looked at HEAD does not get to its merge.
PERSON_BEFORE_MERGE: Kind = {
    **_CALM,
    "hard": False,
    "person": 0.1,
    "person_waits": False,
    "freezes": 0.2,
}
# The same before a relocation.
PERSON_BEFORE_RELOCATION: Kind = {
    **_CALM,
    "hard": False,
    "person": 0.03,
    "person_waits": True,
    "replacement": "provenance",
    "moves": 0.3,
    "freezes": 2.0,
    "freezes_before": ("lake.changes_actions",),
}
# An execution stops before it makes its licence, until others have done their work.
_FROZEN: Kind = {**_CALM, "freezes": 2.0, "freezes_before": ("lake.create_branch",)}
# Its lease runs out, and HEAD is what an earlier execution left.
FROZEN_PAST_LEASE: Kind = {**_FROZEN, "timeouts": 0.03, "abandoned": True}
# Its attempt ends before its lease does: only Conductor can tell.
FROZEN_AND_REOPENED: Kind = {**_FROZEN, "operator": 0.03}
# An execution stops before it withdraws its own licence, and its successor, which changes nothing,
# before it lists the licences; in which order they go on is open.
FROZEN_AT_WITHDRAWALS: Kind = {
    **_CALM,
    "moves": 3.0,
    "freezes": 16.0,
    "freezes_before": ("lake.tag", "lake.list_branches"),
    "thaws": 0.1,
    "operator": 0.05,
    "operations": 1,
    "bursts": False,
    "abandoned": False,
    "no_ops": (2,),
}
# A reply is lost, and the looks at HEAD that follow are answered late.
SLOW_LOOKS: Kind = {
    **_CALM,
    "moves": 0.3,
    "slow": 0.5,
    "slow_calls": ("lake.get_head",),
}
# Executions stop before two calls, whichever they are, and one of them goes on first.
FROZEN_AT_TWO_CALLS: Kind = {
    **_CALM,
    "moves": 0.5,
    "freezes": 8.0,
    "timeouts": 0.02,
    "operator": 0.05,
    "operations": 1,
}

KINDS: tuple[Kind, ...] = (
    LATE,
    REOPENED,
    PERSON,
    NO_CLEANUP,
    PERSON_BEFORE_MERGE,
    PERSON_BEFORE_RELOCATION,
    FROZEN_PAST_LEASE,
    FROZEN_AND_REOPENED,
    FROZEN_AT_WITHDRAWALS,
    SLOW_LOOKS,
    FROZEN_AT_TWO_CALLS,
)
# The calls of an attempt from its first fence on.
_CALLS = (
    "attempts.read",
    "attempts.renew",
    "lake.create_branch",
    "lake.commit",
    "lake.list_branches",
    "lake.list_tags",
    "lake.tag",
    "lake.delete_branch",
    "lake.get_head",
    "lake.has_uncommitted_changes",
    "lake.changes_actions",
    "lake.merge",
    "lake.relocate",
    "lake.get_commit",
    "lake.is_same",
)


def draw_kind(choices: Choices) -> Kind:
    """A third of the schedules is of a kind; the calm choice is none."""
    drawn = choices.pick("kind", [2 * len(KINDS), *[1] * len(KINDS)])
    kind = KINDS[drawn - 1] if drawn else {}
    if kind is not FROZEN_AT_TWO_CALLS:
        return kind
    calls = [_CALLS[choices.pick("frozen before", [1] * len(_CALLS))] for _ in range(2)]
    return {**kind, "freezes_before": tuple(calls)}
