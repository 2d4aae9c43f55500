"""Rounds: who is measured when, what a median and its spread are, and what a missing peer costs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support.bench.rounds import Contestant, PeerError, hold, middle, orders, ratio
from support.bench.table import OURS


def test_each_round_begins_with_another_contestant() -> None:
    assert list(orders(["a", "b", "c"], 4)) == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_contestants_take_turns_within_a_round() -> None:
    seen: list[tuple[int, str]] = []

    def contestant(name: str) -> Contestant:
        def run(number: int) -> Mapping[str, float]:
            seen.append((number, name))
            return {"up": float(number), "down": 1.0}

        return run

    contest = hold(2, {"a": contestant("a"), "b": contestant("b")})
    assert seen == [(0, "a"), (0, "b"), (1, "b"), (1, "a")]
    assert contest.samples == {
        "up": {"a": [0.0, 1.0], "b": [0.0, 1.0]},
        "down": {"a": [1.0, 1.0], "b": [1.0, 1.0]},
    }
    assert contest.absent == {}


def test_a_round_to_warm_up_does_not_count() -> None:
    contest = hold(2, {"a": lambda number: {"up": float(number)}}, warm_up=True)
    assert contest.samples == {"up": {"a": [0.0, 1.0]}}


def test_samples_are_in_the_order_in_which_contestants_were_named() -> None:
    contest = hold(1, {"a": lambda _: {"up": 1.0}, "b": lambda _: {"up": 1.0}}, warm_up=True)
    assert list(contest.samples["up"]) == ["a", "b"]


def test_a_peer_that_fails_is_missing_with_its_reason_and_the_others_go_on() -> None:
    def fails_later(number: int) -> Mapping[str, float]:
        if number == 1:
            raise PeerError("no such command")
        return {"up": 1.0}

    contest = hold(3, {OURS: lambda _: {"up": 2.0}, "peer": fails_later})
    assert contest.samples == {"up": {OURS: [2.0] * 3}}
    assert contest.absent == {"peer": "no such command"}
    assert contest.ratio("peer", OURS, "up") is None
    assert contest.middle("up", OURS).value == 2.0


def broken(_: int) -> Mapping[str, float]:
    raise RuntimeError("not foreseen")


def test_an_error_of_a_peer_that_nobody_foresaw_leaves_it_out_too() -> None:
    contest = hold(1, {OURS: lambda _: {"up": 2.0}, "peer": broken})
    assert contest.absent == {"peer": "RuntimeError: not foreseen"}


@pytest.mark.parametrize("name", [OURS, f"{OURS}, cache off"])
def test_an_error_of_ours_ends_the_rounds(name: str) -> None:
    with pytest.raises(RuntimeError, match="not foreseen"):
        hold(1, {name: broken})


def test_a_median_has_its_spread_beside_it() -> None:
    assert middle([3.0, 1.0, 2.0]).model_dump() == {"value": 2.0, "low": 1.0, "high": 3.0}
    assert middle([1.0, 2.0]).value == 1.5


def test_a_ratio_is_that_of_the_medians_and_its_spread_that_of_the_rounds() -> None:
    # The third round was a busy moment for both: its ratio is an ordinary one.
    assert ratio([4.0, 5.0, 30.0], [2.0, 2.0, 10.0]).model_dump() == {
        "value": 2.5,
        "low": 2.0,
        "high": 3.0,
    }


def test_the_spread_always_holds_the_value() -> None:
    # Each in the order of its rounds: the medians are those of different rounds.
    found = ratio([1.0, 10.0, 3.0], [1.0, 10.0, 2.0])
    assert found.value == 1.5
    assert found.low == 1.0
    assert found.high == 1.5
    assert ratio([1.0, 2.0, 9.0], [3.0, 1.0, 2.0]).low == pytest.approx(1 / 3)


def test_aspects_of_two_contests_are_kept_apart() -> None:
    here = hold(1, {"ours": lambda _: {"first": 1.0}})
    there = hold(1, {"ours": lambda _: {"first": 4.0}})
    there.absent["peer"] = "gone"
    here.merge("slow: ", there)
    assert here.samples == {"first": {"ours": [1.0]}, "slow: first": {"ours": [4.0]}}
    assert here.absent == {"peer": "gone"}
    found = here.ratio("ours", "ours", "slow: first", beside="first")
    assert found is not None
    assert found.value == 4.0
