"""Whole attempts of a worker, beside the package of PyPI that does the same."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from perago import dev
from perago.connections import LakeFSConnection
from support.bench.peers import Peer
from support.bench.results import Book
from support.bench.rounds import Contest, Value, hold, middle, ratio
from support.bench.steps import FIRST, SECOND, WARM_UP, Load, PeerSteps, Servers, our_worker
from support.bench.table import DEFAULT_DELAY, NO_DELAY, OURS, PEER_PACKAGE
from support.lake_servers import lakefs_server

pytestmark = [pytest.mark.servers, pytest.mark.timeout(7200)]

SMALL = Load(50, 10_240, 5)
MIDDLE = Load(1_000, 10_240, 100)
LARGE = Load(10_000, 10_240, 100, 3600.0)
TENTH, MANY = Load(10_000, 200, 10), Load(100_000, 200, 10, 3600.0)


def beside_the_peer(servers: Servers, peer: Peer, load: Load, rounds: int) -> Contest:
    """Workflows of two steps, each round on repositories that no cache knows."""
    theirs = PeerSteps(servers, peer, load)
    with our_worker(servers) as worker:
        try:
            return hold(
                rounds,
                {
                    OURS: lambda number: worker.steps(load if number >= 0 else WARM_UP),
                    PEER_PACKAGE: theirs,
                },
                warm_up=True,
            )
        finally:
            theirs.stop()


def at_both_delays(
    endpoints: dev.Endpoints, peer: Peer, load: Load, rounds: int, folder: Path
) -> Contest:
    """The same on the run's LakeFS, which does not wait for more writes, and on one that does."""
    conductor, contest = endpoints.conductor, Contest()
    lake = endpoints.lakefs.connection
    with closing(Servers(lake, conductor, folder / "no-delay")) as here:
        contest.merge(f"{NO_DELAY}, ", beside_the_peer(here, peer, load, rounds))
    with lakefs_server(folder / "lakefs", max_batch_delay=None) as lakefs:
        lake = lakefs.endpoint.connection
        with closing(Servers(lake, conductor, folder / "default-delay")) as there:
            contest.merge(f"{DEFAULT_DELAY}, ", beside_the_peer(there, peer, load, rounds))
    return contest


def of_step(contest: Contest, step: str) -> dict[str, Value | None]:
    return {
        delay: contest.ratio(PEER_PACKAGE, OURS, f"{delay}, {step}")
        for delay in (NO_DELAY, DEFAULT_DELAY)
    }


@pytest.mark.bench("attempt-50")
def test_a_small_workspace(
    endpoints: dev.Endpoints, peer: Peer, rounds: int, book: Book, tmp_path: Path
) -> None:
    contest = at_both_delays(endpoints, peer, SMALL, rounds, tmp_path)
    book.record("attempt-50", contest, of_step(contest, FIRST))


@pytest.mark.bench("attempt-1000", "attempt-1000-second")
def test_a_middle_workspace(
    endpoints: dev.Endpoints, peer: Peer, rounds: int, book: Book, tmp_path: Path
) -> None:
    contest = at_both_delays(endpoints, peer, MIDDLE, rounds, tmp_path)
    book.record("attempt-1000", contest, of_step(contest, FIRST))
    book.record("attempt-1000-second", contest, of_step(contest, SECOND))


@pytest.mark.bench("attempt-10000")
def test_a_large_workspace(
    connection: LakeFSConnection,
    endpoints: dev.Endpoints,
    peer: Peer,
    rounds: int,
    book: Book,
    tmp_path: Path,
) -> None:
    with closing(Servers(connection, endpoints.conductor, tmp_path)) as servers:
        contest = beside_the_peer(servers, peer, LARGE, rounds)
    figures = {step: contest.ratio(PEER_PACKAGE, OURS, step) for step in (FIRST, SECOND)}
    book.record("attempt-10000", contest, figures)


@pytest.mark.bench("many-objects")
def test_very_many_objects(
    connection: LakeFSConnection,
    endpoints: dev.Endpoints,
    rounds: int,
    book: Book,
    tmp_path: Path,
) -> None:
    """Beside a tenth of the objects: the time for each may hardly grow with their number."""
    with (
        closing(Servers(connection, endpoints.conductor, tmp_path)) as servers,
        our_worker(servers) as worker,
    ):

        def steps(number: int) -> dict[str, float]:
            if number < 0:
                return worker.steps(WARM_UP)
            tenth = worker.steps(TENTH)
            found = worker.steps(MANY)
            return {
                "first step of 10,000": tenth[FIRST],
                **found,
                "MB": worker.peak_megabytes(),
            }

        contest = hold(rounds, {OURS: steps}, warm_up=True)
    ten_times = [10 * seconds for seconds in contest.samples["first step of 10,000"][OURS]]
    first = contest.samples[FIRST][OURS]
    figures = {
        "growth": ratio(first, ten_times),
        "second step": contest.ratio(OURS, OURS, SECOND, beside=FIRST),
        "memory": middle(contest.samples["MB"][OURS]),
    }
    book.record("many-objects", contest, figures)
