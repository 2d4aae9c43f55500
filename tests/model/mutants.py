"""Every mutant of the rules with the property it breaks, and where it does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from model.rules import Kind, Rules, Scenario

RULES = Rules()
KINDS: tuple[Kind, ...] = ("changes", "no-op")

OUTSIDE: tuple[dict[str, Any], ...] = (
    {},
    {"person": "changes"},
    {"person": "empty"},
    {"person": "changes", "replacement": "head-state"},
    {"stray_writer": True},
    {"gc": True},
    {"redelivery": True, "claim_stands_while_posting": True},
    {"second_task_from": 1},
)


def scenarios(executions: int, **fixed: Any) -> list[Scenario]:
    """Return every combination of changes and no-ops, with and without an abandoned commit."""
    return [
        Scenario(kinds, abandoned=abandoned, **fixed)
        for kinds in product(KINDS, repeat=executions)
        for abandoned in (False, True)
    ]


def two_executions() -> list[Scenario]:
    """Return every scenario of two executions, under both fences and everything from outside."""
    return [
        scenario
        for outside in OUTSIDE
        for hard in (False, True)
        for scenario in scenarios(2, hard_fence=hard, **outside)
    ]


@dataclass(frozen=True)
class Mutant:
    """A protection left out, the property that breaks, and the scenario in which it does."""

    name: str
    rules: Rules
    breaks: str
    scenario: Scenario


def mutant(name: str, breaks: str, scenario: Scenario, **without: Any) -> Mutant:
    return Mutant(name, replace(RULES, **without), breaks, scenario)


BOTH_CHANGE = Scenario(("changes", "changes"))
THEN_NO_OP = Scenario(("changes", "no-op"))
NO_OPS_BACK = Scenario(("no-op", "no-op"), abandoned=True)
PERSON = Scenario(("changes",), person="changes")

MUTANTS = (
    mutant("sources named by commit id", "9", THEN_NO_OP, source_is_branch=False),
    mutant("sources named by commit id: mixture", "1", BOTH_CHANGE, source_is_branch=False),
    mutant("no withdrawal of others", "1", BOTH_CHANGE, withdraw_others=False),
    mutant(
        "no withdrawal of others, hard fence",
        "9",
        replace(THEN_NO_OP, hard_fence=True),
        withdraw_others=False,
    ),
    mutant(
        "no withdrawal of others, hard fence: relocation",
        "9",
        replace(BOTH_CHANGE, hard_fence=True, abandoned=True),
        withdraw_others=False,
    ),
    mutant("a no-op does not withdraw", "9", THEN_NO_OP, no_op_withdraws=False),
    mutant(
        "a no-op does not withdraw, hard fence",
        "9",
        replace(THEN_NO_OP, hard_fence=True),
        no_op_withdraws=False,
    ),
    mutant("no wait after a withdrawal", "9", THEN_NO_OP, wait="never"),
    mutant("no wait after a withdrawal: mixture", "1", BOTH_CHANGE, wait="never"),
    mutant(
        "no wait after a withdrawal, hard fence",
        "9",
        replace(THEN_NO_OP, hard_fence=True),
        wait="never",
    ),
    mutant("a wait only if a licence was found", "9", THEN_NO_OP, wait="found"),
    mutant("a wait only if a licence was found: mixture", "1", BOTH_CHANGE, wait="found"),
    mutant(
        "a wait only if a licence was found: the withdrawing execution died",
        "9",
        Scenario(("changes", "no-op", "no-op"), replies_arrive=True),
        wait="found",
    ),
    mutant(
        "a withdrawn tag only for commits",
        "9",
        replace(NO_OPS_BACK, second_task_from=1),
        tag_empty_licences=False,
    ),
    mutant("tags listed before branches", "9", THEN_NO_OP, tags_listed_after_branches=False),
    mutant(
        "tags listed before branches: mixture",
        "1",
        BOTH_CHANGE,
        tags_listed_after_branches=False,
    ),
    mutant(
        "gc leaves no withdrawn tag",
        "9",
        replace(THEN_NO_OP, gc=True),
        gc_leaves_withdrawn_tag=False,
    ),
    mutant(
        "withdrawal within the logical task only",
        "1",
        replace(BOTH_CHANGE, second_task_from=1),
        withdraw_other_tasks=False,
    ),
    mutant(
        "withdrawal within the logical task only, hard fence",
        "9",
        replace(BOTH_CHANGE, second_task_from=1, hard_fence=True, abandoned=True),
        withdraw_other_tasks=False,
    ),
    mutant("HEAD read before the withdrawal", "1", BOTH_CHANGE, head_read_after_withdrawal=False),
    mutant("a licence made after the last fence", "9", THEN_NO_OP, licence_before_last_fence=False),
    mutant(
        "a no-op's licence made after the last fence",
        "9",
        NO_OPS_BACK,
        licence_before_last_fence=False,
    ),
    mutant("no second attempt fence", "9", THEN_NO_OP, second_fence=False),
    mutant("no third attempt fence for a no-op", "9", NO_OPS_BACK, third_fence_of_no_op=False),
    mutant(
        "no re-read of HEAD before relocation",
        "10",
        replace(PERSON, abandoned=True),
        reread_head=False,
    ),
    mutant("replacement without provenance", "10", PERSON, provenance=False),
    mutant(
        "no tag before relocation",
        "10",
        replace(PERSON, replacement="head-state"),
        tag_before_relocation=False,
    ),
    mutant(
        "no read-back of the first parent",
        "3",
        Scenario(("changes",), person="empty"),
        readback_parent=False,
    ),
    mutant(
        "no read-back diff", "3", Scenario(("changes",), stray_writer=True), readback_diff=False
    ),
    mutant(
        "no withdrawal of the own licence after a lost reply",
        "outcome",
        Scenario(("changes",)),
        withdraw_own_after_lost_reply=False,
    ),
    mutant(
        "no wait after the own withdrawal",
        "outcome",
        Scenario(("changes",)),
        wait_after_own_withdrawal=False,
    ),
    mutant(
        "the last reading of HEAD begins before the wait is over",
        "outcome",
        Scenario(("changes",)),
        wait_before_own_reading=False,
    ),
    mutant(
        "not landed because HEAD is another commit",
        "outcome",
        PERSON,
        not_landed_only_if_head_unmoved=False,
    ),
    mutant(
        "no claim check before the completion post",
        "4",
        Scenario(("no-op", "changes"), redelivery=True, claim_stands_while_posting=True),
        claim_check_before_post=False,
    ),
    mutant(
        "LakeFS: an unconditional write",
        "7",
        replace(PERSON, hard_fence=True),
        conditional_write=False,
    ),
    mutant(
        "LakeFS: a retried write that neither resolves nor runs the hook again",
        "7",
        replace(PERSON, hard_fence=True),
        source_resolved_again=False,
    ),
)

# Left out, these break nothing that is claimed: docs/model.md says why they stay.
REDUNDANT = {
    "no first attempt fence": replace(RULES, first_fence=False),
    "no third attempt fence for changes": replace(RULES, third_fence_of_changes=False),
    "withdrawal before the last fence": replace(RULES, withdraw_after_fence=False),
    "withdrawal of earlier executions only": replace(RULES, withdraw_later_ones=False),
    "no veto of later attempts": replace(RULES, veto_of_later_attempts=False),
    "the five above at once": replace(
        RULES,
        first_fence=False,
        third_fence_of_changes=False,
        withdraw_after_fence=False,
        withdraw_later_ones=False,
        veto_of_later_attempts=False,
    ),
    "a wait after every earlier execution": replace(RULES, wait="earlier execution"),
}

# What goes further than the claims and does not hold, with the rules as they are.
LIMITS = (
    Mutant("a person commits between check and merge, soft fence", RULES, "1 always", PERSON),
    Mutant(
        "a person commits between the last look at HEAD and the relocation",
        RULES,
        "10 always",
        replace(PERSON, abandoned=True),
    ),
    Mutant(
        "two merges from one input land, with a return to the input between them",
        RULES,
        "7 by count",
        Scenario(("changes", "no-op", "changes"), hard_fence=True),
    ),
    Mutant(
        "the same task id is delivered again between the read of the claim and the post",
        RULES,
        "4",
        Scenario(("no-op", "changes"), redelivery=True),
    ),
    Mutant("a stale execution withdraws the live licence", RULES, "live licence", BOTH_CHANGE),
)
