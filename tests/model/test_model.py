"""Every interleaving of the protocol is explored; every mutant of its rules is refuted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from model.__main__ import schedule
from model.explore import Exploration, explore
from model.mutants import (
    BOTH_CHANGE,
    LIMITS,
    MUTANTS,
    PERSON,
    REDUNDANT,
    RULES,
    Mutant,
    scenarios,
    two_executions,
)
from model.properties import CLAIMED, Watched
from model.rules import Rules, Scenario
from model.state import Event

PAGE = Path(__file__).parents[2] / "docs" / "model.md"
THREE_CORE = [*scenarios(3), Scenario(("changes", "no-op", "changes"), second_task_from=2)]
THREE_MORE = [
    *(scenario for first in (1, 2) for scenario in scenarios(3, second_task_from=first)),
    *scenarios(3, redelivery=True, claim_stands_while_posting=True),
    *scenarios(3, gc=True),
    *scenarios(3, person="changes"),
    *scenarios(3, person="changes", hard_fence=True),
]
# What an exhaustive search must have come across, or it has searched too little.
TURNS = (
    "{it} is found stale by its first attempt fence",
    "{it} is found stale by its second attempt fence",
    "{it} is found stale by its third attempt fence",
    "{it} finds its staging branch gone and stops",
    "{it} lists the licences of others: none",
    "{it} lists withdrawn tags: some exist",
    "{it} lists withdrawn tags: none",
    "{it} reads HEAD (not explained) and fails",
    "{it} reads HEAD again (moved) and fails",
    "{it} reads HEAD (the input) and has nothing to publish",
    "{it} gets the reply and reads back its result",
    "{it} gets the reply, reads back something else and fails",
    "{it} finds its own commit at HEAD and reads back its result",
    "{it} reads HEAD and reports that its request has not landed",
    "{it} finds another commit at HEAD: outcome unknown",
    "{it} reads that the claim is no longer its own and posts nothing",
    "{it} posts COMPLETED and Conductor accepts it",
    "{it} posts COMPLETED and Conductor ignores it",
    "{its} merge lands: LakeFS writes the target",
    "{its} relocation lands: LakeFS writes the target",
    "LakeFS refuses {its} merge: its source is gone",
    "LakeFS refuses {its} relocation: its source is gone",
    "LakeFS refuses {its} merge: the hook expected another HEAD",
    "LakeFS finds HEAD moved under {its} merge",
    "LakeFS finds HEAD moved under {its} relocation",
    "LakeFS drops {its} merge without a reply",
    "{other} starts the next step from {its} output",
    "the workflow fails and {other} starts a new one from HEAD",
    "the completed task is run again and {other} starts",
)


def search(
    scenario: Scenario, rules: Rules = RULES, watched: frozenset[str] = CLAIMED
) -> Exploration[Event]:
    return explore(Watched(scenario, rules, watched))


def in_words(exploration: Exploration[Event]) -> str:
    if exploration.violation is None:
        return ""
    steps = (f"{n}. {event}" for n, event in enumerate(exploration.violation.schedule, 1))
    return "\n".join([f"property {exploration.violation.broken} is violated:", *steps])


def test_no_schedule_of_two_executions_violates_a_property() -> None:
    seen: set[str] = set()
    for scenario in two_executions():
        found = search(scenario)
        assert found.violation is None, f"{scenario}\n{in_words(found)}"
        seen |= {event.text for event in found.events}
    assert not set(TURNS) - seen


@pytest.mark.parametrize("scenario", THREE_CORE, ids=str)
def test_no_schedule_of_three_executions_violates_a_property(scenario: Scenario) -> None:
    found = search(scenario)
    assert found.violation is None, in_words(found)
    assert found.states > 10 ** len(scenario.executions) / 10


@pytest.mark.slow
@pytest.mark.parametrize("scenario", THREE_MORE, ids=str)
def test_no_schedule_of_three_executions_and_outsiders_violates_a_property(
    scenario: Scenario,
) -> None:
    found = search(scenario)
    assert found.violation is None, in_words(found)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_of_the_rules_is_refuted(mutant: Mutant) -> None:
    found = search(mutant.scenario, mutant.rules, frozenset({mutant.breaks}))
    assert found.violation is not None
    assert found.violation.broken == mutant.breaks


@pytest.mark.parametrize("mutant", [*MUTANTS, *LIMITS], ids=lambda mutant: mutant.name)
def test_the_page_tells_the_shortest_schedule(mutant: Mutant) -> None:
    assert schedule(mutant) in " ".join(PAGE.read_text("utf-8").split())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_rules_hold_where_their_mutant_is_refuted(mutant: Mutant) -> None:
    found = search(mutant.scenario)
    assert found.violation is None, in_words(found)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_a_documented_limit_is_real(limit: Mutant) -> None:
    found = search(limit.scenario, limit.rules, frozenset({limit.breaks}))
    assert found.violation is not None


def test_the_hard_fence_keeps_a_persons_commit_out_of_a_merge() -> None:
    found = search(replace(PERSON, hard_fence=True), watched=frozenset({"1 always"}))
    assert found.violation is None, in_words(found)


def test_withdrawing_earlier_licences_only_spares_the_live_one() -> None:
    rules = REDUNDANT["withdrawal of earlier executions only"]
    found = search(BOTH_CHANGE, rules, frozenset({"live licence"}))
    assert found.violation is None, in_words(found)


@pytest.mark.parametrize("name", REDUNDANT)
def test_a_redundant_protection_can_be_left_out_with_two_executions(name: str) -> None:
    for scenario in scenarios(2) + scenarios(2, second_task_from=1):
        found = search(scenario, REDUNDANT[name])
        assert found.violation is None, f"{scenario}\n{in_words(found)}"


@pytest.mark.slow
@pytest.mark.parametrize("name", REDUNDANT)
def test_a_redundant_protection_can_be_left_out_whatever_comes_from_outside(name: str) -> None:
    for scenario in two_executions():
        found = search(scenario, REDUNDANT[name])
        assert found.violation is None, f"{scenario}\n{in_words(found)}"


@pytest.mark.slow
@pytest.mark.parametrize("scenario", scenarios(3), ids=str)
@pytest.mark.parametrize("name", REDUNDANT)
def test_a_redundant_protection_can_be_left_out_with_three_executions(
    name: str, scenario: Scenario
) -> None:
    found = search(scenario, REDUNDANT[name])
    assert found.violation is None, in_words(found)


class Counter:
    """Count to three; four is a violation and nothing follows three."""

    def __init__(self, wrong: int = 4, rest: int = 3) -> None:
        self.wrong, self.rest = wrong, rest

    def initial(self) -> int:
        return 0

    def moves(self, state: int) -> list[tuple[str, int]]:
        return [("up", state + 1), ("stay", state)] if state < 3 else []

    def objection(self, before: int, event: str, after: int) -> str | None:
        return "too far" if after == self.wrong else None

    def may_rest(self, state: int) -> bool:
        return state == self.rest


def test_the_checker_visits_every_state_once() -> None:
    assert explore(Counter()) == Exploration(4, 6, frozenset({"up", "stay"}), None)


def test_the_checker_returns_the_shortest_schedule() -> None:
    violation = explore(Counter(wrong=2)).violation
    assert violation is not None
    assert (violation.broken, violation.schedule) == ("too far", ("up", "up"))


def test_the_checker_reports_a_state_from_which_nothing_can_happen() -> None:
    violation = explore(Counter(rest=2)).violation
    assert violation is not None
    assert (violation.broken, violation.schedule) == ("deadlock", ("up", "up", "up"))


def test_the_checker_refuses_half_an_answer() -> None:
    with pytest.raises(OverflowError, match="smaller scenario"):
        explore(Counter(), at_most=2)
