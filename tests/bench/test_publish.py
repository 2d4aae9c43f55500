"""What the publication costs beside its own requests, made bare."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from perago import dev
from perago.protocol.events import PhaseEvent
from perago.protocol.outcome import Completed
from perago.protocol.ports import Delivery
from perago.protocol.workspace import StagingBranch
from perago.testing import FaultProxy
from support.bench.bare_publish import BarePublish, shapes
from support.bench.results import Book
from support.bench.rounds import hold, seconds_of
from support.bench.table import OURS
from support.real_world import Params, RealWorld, Result, Servers

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

BARE = "bare requests"
PHASES = ("second_fence", "publish")


def write_one(workspace: Path, params: Params) -> Result:
    """A body that changes one file."""
    (workspace / "a.txt").write_text(uuid.uuid4().hex)
    return Result()


def by_attempt(world: RealWorld) -> float:
    """One attempt; the seconds from its second fence to the end of the publication."""
    world.start()
    del world.events[:]
    outcome, _ = world.attempt(world.job(write_one))
    assert isinstance(outcome, Completed), outcome
    world.ref = outcome.output["workspace"]["ref"]
    ended = {event.phase: event.seconds for event in world.events if event.seconds is not None}
    return sum(ended[phase] for phase in PHASES)


def by_hand(world: RealWorld, bare: BarePublish) -> float:
    """The same requests for a task and a staging branch that are there."""
    world.start()
    delivery = world.claim()
    staging = StagingBranch(world.repository, f"perago-staging-{uuid.uuid4().hex}")
    world.control.create_branch(staging, world.ref)
    world.put(staging.branch, "data/a.txt", uuid.uuid4().hex)
    commit = world.control.commit(staging, "bench", {}).commit
    merged: list[str] = []
    seconds = seconds_of(
        lambda: merged.append(bare.publish(world, delivery, staging.branch, commit))
    )
    world.control.delete_branch(staging)
    complete(world, delivery)
    world.ref = merged[0]
    return seconds


def complete(world: RealWorld, delivery: Delivery) -> None:
    output = {"workspace": world.workspace(), "result": {}}
    world.report(delivery, Completed(output))


class Marked(list[PhaseEvent]):
    """The events of a world, and how many requests the proxies had seen at each of the step."""

    def __init__(self, proxies: Sequence[FaultProxy]) -> None:
        super().__init__()
        self._proxies = proxies
        self.marks: list[list[int]] = []

    def append(self, event: PhaseEvent) -> None:
        super().append(event)
        if event.phase in PHASES and event.action in ("phase_started", "phase_ended"):
            self.marks.append([len(proxy.exchanges) for proxy in self._proxies])


def assert_same_requests(world: RealWorld, endpoints: dev.Endpoints, folder: Path) -> None:
    """Otherwise the bare requests are no measure of the step, and have to be brought up to date."""
    with (
        FaultProxy(endpoints.lakefs.endpoint) as lakefs,
        FaultProxy(endpoints.conductor.server_url) as conductor,
    ):
        proxies = (lakefs, conductor)
        behind = endpoints.model_copy(
            update={
                "lakefs": endpoints.lakefs.model_copy(update={"endpoint": lakefs.url}),
                "conductor": dev.ConductorEndpoint(server_url=conductor.url),
            }
        )
        with closing(Servers(behind)) as servers:
            events = Marked(proxies)
            by_attempt(RealWorld(servers, folder / "recorded", events=events))
            after = [len(proxy.exchanges) for proxy in proxies]
            # The world itself is not behind the proxies: they see the bare requests alone.
            with closing(BarePublish.on(servers.connection, conductor.url)) as bare:
                by_hand(world, bare)
        for number, proxy in enumerate(proxies):
            made = shapes((one.method, one.path) for one in proxy.exchanges)
            step = made[events.marks[0][number] : events.marks[-1][number]]
            assert made[after[number] :] == step, "bring support/bench/bare_publish.py up to date"


@pytest.mark.bench("publish")
def test_a_publication(
    world: RealWorld, endpoints: dev.Endpoints, rounds: int, book: Book, tmp_path: Path
) -> None:
    assert_same_requests(world, endpoints, tmp_path)
    with closing(BarePublish.on(world.servers.connection, endpoints.conductor.server_url)) as bare:
        contest = hold(
            rounds,
            {
                OURS: lambda _: {"publish": by_attempt(world)},
                BARE: lambda _: {"publish": by_hand(world, bare)},
            },
            warm_up=True,
        )
    book.record("publish", contest, {"publish": contest.ratio(OURS, BARE, "publish")})
