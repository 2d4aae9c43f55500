"""Sharing out: every object once, nothing over the bounds, the large ones first."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.transfer.partition import Bounds, Grouping, TransferSize, pack

# Small bounds, so that few objects show every case; sizes on both sides of them.
BOUNDS = st.builds(Bounds, objects=st.integers(1, 6), size=st.integers(1, 40))
SIZES = st.lists(st.integers(0, 60), max_size=60)


def shared_out(sizes: list[int], bounds: Bounds, parts: int = 1) -> dict[int, list[int]]:
    """The objects, by their position, of each partition."""
    grouping = Grouping(bounds.part(parts))
    groups = [grouping.add(size) for size in sizes]
    partition_of_group = pack(grouping.sizes, bounds)
    partitions: dict[int, list[int]] = {}
    for position, group in enumerate(groups):
        partitions.setdefault(partition_of_group[group], []).append(position)
    return partitions


@given(SIZES, BOUNDS, st.integers(1, 4))
def test_every_object_is_in_exactly_one_partition(
    sizes: list[int], bounds: Bounds, parts: int
) -> None:
    partitions = shared_out(sizes, bounds, parts)
    found = sorted(position for members in partitions.values() for position in members)
    assert found == list(range(len(sizes)))
    assert sorted(partitions) == list(range(len(partitions)))


@given(SIZES, BOUNDS, st.integers(1, 4))
def test_a_partition_of_several_objects_is_within_the_bounds(
    sizes: list[int], bounds: Bounds, parts: int
) -> None:
    for members in shared_out(sizes, bounds, parts).values():
        if len(members) > 1:
            assert len(members) <= bounds.objects
            assert sum(sizes[position] for position in members) <= bounds.size


@given(SIZES, BOUNDS, st.integers(1, 4))
def test_an_object_larger_than_the_bound_is_alone(
    sizes: list[int], bounds: Bounds, parts: int
) -> None:
    for members in shared_out(sizes, bounds, parts).values():
        if any(sizes[position] > bounds.size for position in members):
            assert len(members) == 1


@given(SIZES, BOUNDS)
def test_partitions_are_numbered_from_the_largest_to_the_smallest(
    sizes: list[int], bounds: Bounds
) -> None:
    partitions = shared_out(sizes, bounds)
    weights = [sum(sizes[p] for p in partitions[number]) for number in range(len(partitions))]
    assert weights == sorted(weights, reverse=True)


@given(SIZES, BOUNDS)
def test_the_groups_sizes_are_those_of_their_objects(sizes: list[int], bounds: Bounds) -> None:
    grouping = Grouping(bounds)
    real: dict[int, TransferSize] = {}
    for size in sizes:
        group = grouping.add(size)
        real[group] = real.get(group, TransferSize()) + TransferSize(1, size)
    assert grouping.sizes == [real[number] for number in range(len(real))]


def test_a_large_object_does_not_close_the_group_that_is_being_filled() -> None:
    grouping = Grouping(Bounds(objects=10, size=10))
    assert [grouping.add(size) for size in (3, 100, 3, 100, 3)] == [0, 1, 0, 2, 0]


def test_large_files_get_partitions_of_their_own_and_small_ones_share() -> None:
    partitions = shared_out([1, 1, 90, 1, 90, 1], Bounds(objects=100, size=50))
    assert partitions == {0: [2], 1: [4], 2: [0, 1, 3, 5]}


@pytest.mark.parametrize("wrong", [{"objects": 0}, {"size": 0}])
def test_bounds_that_would_hold_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Bounds(**wrong)


def test_groups_without_bytes_fill_partitions_by_their_number() -> None:
    """Deletes and empty files: one full partition must not make every further group a new one."""
    partition_of_group = pack([TransferSize(10)] * 100, Bounds(objects=40, size=100))
    assert sorted(Counter(partition_of_group).values()) == [4] * 25
