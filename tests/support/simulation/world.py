"""One target branch, one workflow, several executions, and everything that can go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import tenacity.nap
from greenlet import getcurrent
from pydantic import BaseModel

from perago import retry
from perago.errors import BackendError, BackendUnavailableError, LostReplyError
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT
from perago.protocol.identity import Claim, Execution
from perago.protocol.job import Job, Policy, Ports, StoragePorts, WorkspaceUse
from perago.protocol.record import Record
from perago.protocol.run import run_attempt
from perago.testing import (
    Faults,
    InMemoryConductor,
    InMemoryLake,
    InMemoryWorkspaces,
    ManualClock,
    TaskSettings,
)
from perago.testing.faults import BranchUpdate
from perago.worker.report import report
from support.simulation.actors import Actor, Answer, Call, Sleep, wait_for
from support.simulation.choices import Choices
from support.simulation.folders import Folders
from support.simulation.invariants import BranchInvariants
from support.simulation.kinds import draw_kind
from support.simulation.scenario import draw

REPOSITORY, BRANCH, TASK = "repo", "main", "task"
LEASE_SECONDS = 60.0
LANDING_SECONDS = 5.0
_MOST_EXECUTIONS = 7
_MOST_STEPS = 700
# After so many steps the world is calm: what is under way lands or is lost, and the rest runs on.
_HOSTILE_STEPS = 200
# How likely an execution goes on, and how likely in the burst of another one.
_TURN, _OTHER_TURN = 4.0, 0.3
# How long an answer takes: some steps of another one, a pause between two looks at HEAD, or more
# than the time in which a merge lands.
_SLOW_SECONDS = (0.05, 0.7, LANDING_SECONDS + 1.0)
_CHANGES = frozenset({"lake.create_branch", "lake.commit", "lake.merge", "lake.relocate"})
_MOVES = frozenset({"lake.merge", "lake.relocate"})


class Params(BaseModel):
    """Nothing to say."""


class Result(BaseModel):
    """Who did it."""

    by: str = ""


@dataclass
class UnderWay:
    """A request that LakeFS may still carry out; most were given up by their clients."""

    owner: str
    name: str
    land: Callable[[], Any]
    # How likely it is to land at the next step; 0: not before everything else is over.
    weight: float
    # A request that has resolved its source lands within the time a merge may take.
    until: float | None = None
    # Where its client still waits for the answer.
    answer: Answer | None = None


class SimulatedClock(ManualClock):
    """Time moves by the scheduler's hand; to sleep is to wait for it."""

    def __init__(self, actors: dict[object, Actor]) -> None:
        super().__init__()
        self._actors = actors

    def sleep(self, seconds: float) -> None:
        actor = self._actors.get(getcurrent())
        if actor is None:
            self.advance(seconds)
        else:
            wait_for(actor, Sleep(self.monotonic() + seconds))


class Scheduled(Faults):
    """Every port call of an execution stops for the scheduler."""

    def __init__(self, actors: dict[object, Actor]) -> None:
        super().__init__()
        self._actors = actors

    def run(self, call: str, do: Callable[[], Any]) -> Any:
        actor = self._actors.get(getcurrent())
        return do() if actor is None else wait_for(actor, Call(call, do))


class Simulation:
    """Runs one schedule; raises ``AssertionError`` at the first violation."""

    def __init__(self, choices: Choices, **focus: Any) -> None:
        """``focus`` sets fields of the scenario that are otherwise drawn, or of a drawn kind."""
        self.choices = choices
        self.scenario = replace(draw(choices), **(focus or draw_kind(choices)))
        self._by_greenlet: dict[object, Actor] = {}
        self.clock = SimulatedClock(self._by_greenlet)
        self.faults = Scheduled(self._by_greenlet)
        self.lake = InMemoryLake(self.faults)
        self.conductor = InMemoryConductor(self.clock, self.faults)
        self.actors: list[Actor] = []
        self.under_way: list[UnderWay] = []
        self.lake.create_repository(REPOSITORY)
        files: dict[str, bytes | None] = {"data/a": b"0", "other/x": b"x"}
        if self.scenario.hard:
            files[ACTION_PATH] = ACTION_TEXT.encode()
        self.ref = self.lake.write_and_commit(REPOSITORY, BRANCH, files).id
        self.invariants = BranchInvariants(
            self.lake.repository(REPOSITORY),
            BRANCH,
            self.ref,
            keeps_tags=self.scenario.replacement == "head-state",
        )
        self._folders = Folders() if self.scenario.sweeps else None
        settings = TaskSettings(TASK, retry_count=4, response_timeout_seconds=LEASE_SECONDS)
        payload = {
            "workspace": {
                "repository": REPOSITORY,
                "branch": BRANCH,
                "ref_type": "commit",
                "ref": self.ref,
            },
            "params": {},
        }
        self.workflow_id = self.conductor.start(settings, payload)
        if self.scenario.abandoned:
            self._abandon()
        self._persons = 0
        self._operations = 0
        self._at = 0
        # Who went on last.
        self._last: Actor | None = None

    def _abandon(self) -> None:
        attempt = self.conductor.workflow(self.workflow_id).tasks[0].attempt
        execution = Execution(Claim(attempt, "claim-0"), "e0")
        record = Record.of(execution, ref=self.ref, params={})
        made = self.lake.write_and_commit(
            REPOSITORY, BRANCH, {"data/e0": b"1"}, metadata=record.metadata()
        )
        self.invariants.abandoned(execution, {"data/e0": b"1"}, made.id)

    def close(self) -> None:
        """End what still runs, and remove what it left."""
        for actor in self.actors:
            if actor.is_live:
                actor.kill()
        if self._folders is not None:
            self._folders.close()

    # The scheduler

    def run(self) -> None:
        """Take steps until nothing is left to do."""
        with _tenacity_sleeps(self.clock):
            for self._at in range(_MOST_STEPS):
                if not self._step(hostile=self._at < _HOSTILE_STEPS):
                    break
                self._observe()
            self._finish()
        self.invariants.at_the_end(self.lake, self.conductor.workflow(self.workflow_id))

    def _step(self, *, hostile: bool) -> bool:
        """Take one step; False when nothing can happen any more."""
        self.clock.advance(0.01)
        self._land_what_is_due()
        options: list[tuple[float, str, Callable[[], None]]] = []
        ready = [actor for actor in self.actors if self._is_ready(actor)]
        options += [
            (weight, f"{actor.name} {_next_of(actor)}", _bind(self._go_on, actor))
            for actor, weight in zip(ready, self._turns(ready), strict=True)
        ]
        if self._can_claim():
            options.append((3.0, "a worker claims", self._claim))
        if not ready:
            options += self._idle_options()
        if hostile:
            options += self._hostile_options(ready)
        if not options:
            options += self._calm_options()
        if not options:
            return False
        weights = [weight for weight, _, _ in options]
        chosen = self.choices.pick("step", weights)
        self.invariants.log(options[chosen][1])
        options[chosen][2]()
        return True

    def _turns(self, ready: list[Actor]) -> list[float]:
        """How likely each goes on. In bursts the last one does, and one that is about to post."""
        if not self.scenario.bursts or self._last not in ready:
            return [_TURN] * len(ready)
        return [_TURN if a is self._last or _is_posting(a) else _OTHER_TURN for a in ready]

    def _idle_options(self) -> list[tuple[float, str, Callable[[], None]]]:
        """What happens when nobody can go on: time passes, or one that is frozen goes on."""
        options: list[tuple[float, str, Callable[[], None]]] = []
        if self._wakes():
            options.append((2.0, "time passes", self._pass_time))
        frozen = [a for a in self.actors if a.is_live and a.frozen_until > self._at]
        thaws = self.scenario.thaws
        return options + [(thaws, f"{a.name} thaws", _bind(self._thaw, a)) for a in frozen]

    def _hostile_options(self, ready: list[Actor]) -> list[tuple[float, str, Callable[[], None]]]:
        options: list[tuple[float, str, Callable[[], None]]] = [
            (request.weight, f"{request.owner}'s {request.name} lands", _bind(self._land, request))
            for request in self.under_way
            if request.weight
        ]
        kills, timeouts = self.scenario.kills, self.scenario.timeouts
        if kills:
            options += [(kills, f"{a.name} is killed", _bind(self._kill, a)) for a in ready]
        if freezes := self.scenario.freezes:
            options += [
                (freezes, f"{a.name} freezes", _bind(self._freeze, a))
                for a in ready
                if self._may_freeze(a)
            ]
        if self._folders is not None and ready:
            options.append((self.scenario.sweeps, "a worker sweeps", self._folders.sweep))
        if self._is_left_alone():
            options.append((1.0, "the lease runs out", self._time_out))
        elif timeouts and any(actor.is_live for actor in self.actors):
            options.append((timeouts, "the lease runs out", self._time_out))
        if self.scenario.operator and self._operations < self.scenario.operations:
            options.append((self.scenario.operator, "an operator acts", self._operate))
        if self._may_a_person_commit():
            options.append((self.scenario.person, "a person commits", self._person_commits))
        return options

    def _may_a_person_commit(self) -> bool:
        scenario = self.scenario
        in_time = not scenario.person_waits or self.invariants.head != self.ref
        once = bool(scenario.person) and self._persons < 1
        return once and in_time and not self._relocation_under_way()

    def _calm_options(self) -> list[tuple[float, str, Callable[[], None]]]:
        """What ends a schedule: requests land, leases run out, retries come to their end."""
        if self._is_left_alone():
            return [(1.0, "the lease runs out", self._time_out)]
        return [
            (1.0, f"{request.owner}'s {request.name} lands", _bind(self._land, request))
            for request in self.under_way
        ]

    # What can happen

    def _is_left_alone(self) -> bool:
        """Whether whoever had the attempt is dead: nothing but its lease will end it."""
        task = self.conductor.workflow(self.workflow_id).tasks[-1]
        return task.status == "IN_PROGRESS" and not any(actor.is_live for actor in self.actors)

    def _is_ready(self, actor: Actor) -> bool:
        waiting = actor.waiting
        if not actor.is_live or actor.frozen_until > self._at:
            return False
        return isinstance(waiting, Call) or self._is_due(waiting)

    def _can_claim(self) -> bool:
        task = self.conductor.workflow(self.workflow_id).tasks[-1]
        waits = task.queued and task.available_at <= self.clock.monotonic()
        return waits and len(self.actors) < _MOST_EXECUTIONS

    def _claim(self) -> None:
        number = len(self.actors) + 1
        delivery = self.conductor.poll(TASK, f"claim-{number}")
        if delivery is None:
            return
        drawn = bool(self.choices.pick(f"E{number} changes nothing", [2, 1]))
        no_op = number in self.scenario.no_ops if self.scenario.no_ops else drawn
        execution = Execution(delivery.claim, f"e{number}")
        self.invariants.claimed(execution, changes={} if no_op else {f"data/e{number}": b"1"})

        workspaces = InMemoryWorkspaces(self.lake)

        def live() -> None:
            job = self._job(execution, workspaces, no_op=no_op)
            with self._folders.made(execution) if self._folders else nullcontext():
                outcome = run_attempt(job, execution, delivery.payload, self._ports(workspaces))
            self.invariants.ended(execution, outcome)
            actor.reports = True
            try:
                reported = report(self.conductor, delivery.claim, outcome, [], seconds=30.0)
            except BackendError:
                return
            self.invariants.reported(execution, outcome, reported)

        actor = Actor(f"E{number}", live)
        self.actors.append(actor)
        green = actor.prepare()
        self._by_greenlet[green] = actor
        actor.start()

    def _job(self, execution: Execution, workspaces: InMemoryWorkspaces, *, no_op: bool) -> Job:
        def body(data: Any, params: BaseModel) -> Result:
            if not no_op:
                workspaces.files_at(data)[execution.id] = b"1"
            return Result(by=execution.id)

        use = WorkspaceUse("data", read_only=False, check_pre=_nothing, check_post=_nothing)
        return Job(
            TASK,
            Params,
            Result,
            body,
            use,
            recovery=self.scenario.recovery,
            landing_seconds=LANDING_SECONDS,
        )

    def _ports(self, workspaces: InMemoryWorkspaces) -> Ports:
        policy = Policy(
            publish_fence="hard" if self.scenario.hard else "soft",
            replacement=self.scenario.replacement,
        )
        storage = StoragePorts(self.lake, workspaces)
        return Ports(self.conductor, self.clock, lambda _: None, policy, storage)

    def _go_on(self, actor: Actor) -> None:
        self._last = actor
        match actor.waiting:
            case Call() as call:
                self._make_call(actor, call)
            case Answer(result=result, error=error):
                actor.answer(result, error)
            case _:
                actor.answer()

    def _make_call(self, actor: Actor, call: Call) -> None:
        """Carry a call out, or let it go wrong in one of the ways that a network has."""
        moves, changes = call.name in _MOVES, call.name in _CHANGES
        hostile = len(self.choices.made) < 4 * _HOSTILE_STEPS
        wrong = self.scenario.calls if hostile else 0.0
        deletes = hostile and call.name == "lake.delete_branch"
        outage = max(wrong, self.scenario.cleanups) if deletes else wrong
        astray = self.scenario.moves if hostile and moves else 0.0
        slow = self.scenario.slow if hostile and self._may_be_slow(actor, call) else 0.0
        fate = self.choices.pick(
            f"{actor.name} {call.name}",
            [
                1.0,
                outage,  # certainly not done
                wrong if changes else 0.0,  # the request is lost
                wrong if changes else 0.0,  # the reply is lost
                astray,  # it is carried out later
                astray,  # it has resolved its source, and is written later
                wrong,  # the process dies before the call
                wrong,  # the process dies when the call is done
                astray,  # the process dies, and the request comes later
                astray,  # the process dies, and the request has resolved its source
                slow,  # the answer takes time
                slow if moves else 0.0,  # it has resolved its source; written and answered later
            ],
        )
        lost = LostReplyError("the reply was lost")
        match fate:
            case 0:
                self._carry_out(actor, call)
            case 1:
                actor.answer(error=BackendUnavailableError("an outage"))
            case 2:
                actor.answer(error=lost)
            case 3:
                self._attempt(actor, call)
                actor.answer(error=lost)
            case 4 | 8:
                weight = (0.0, 0.05, 0.6)[self.choices.pick("how late", [3, 1, 1])]
                self.under_way.append(UnderWay(actor.name, call.name, call.do, weight))
                if fate == 4:
                    actor.answer(error=lost)
                else:
                    actor.kill()
            case 5 | 9:
                self._resolve(actor, call)
                if fate == 5:
                    actor.answer(error=lost)
                else:
                    actor.kill()
            case 6:
                actor.kill()
            case 10:
                seconds = _SLOW_SECONDS[self.choices.pick("how slow", [1, 1, 1])]
                self.invariants.log(f"  the answer takes {seconds} s")
                actor.waiting = replace(self._ask(actor, call), until=self._in(seconds))
            case 11:
                actor.waiting = Answer(call.name, self._in(LANDING_SECONDS))
                self._resolve(actor, call, actor.waiting)
            case _:
                self._attempt(actor, call)
                actor.kill()

    def _may_be_slow(self, actor: Actor, call: Call) -> bool:
        """Not the read of a claim before a post: the same limit as for freezing between them."""
        if actor.reports and call.name == "attempts.read":
            return False
        return not self.scenario.slow_calls or call.name in self.scenario.slow_calls

    def _carry_out(self, actor: Actor, call: Call) -> None:
        answer = self._ask(actor, call)
        actor.answer(answer.result, answer.error)

    def _ask(self, actor: Actor, call: Call) -> Answer:
        """Carry a call out; what it gives."""
        now = self.clock.monotonic()
        with self.invariants.caused_by(actor.name, call.name):
            try:
                result = call.do()
            except BaseException as error:  # noqa: BLE001  it is the call's answer
                return Answer(call.name, now, error=error)
        self.invariants.answered(actor.name, call.name, result)
        self._observe()
        return Answer(call.name, now, result)

    def _attempt(self, actor: Actor, call: Call) -> None:
        with self.invariants.caused_by(actor.name, call.name):
            try:
                call.do()
            except BackendError:
                return

    def _resolve(self, actor: Actor, call: Call, answer: Answer | None = None) -> None:
        """Let a request resolve its source now; it is written later, and answered then."""
        assert isinstance(call.do, BranchUpdate)
        answer = answer or Answer(call.name, 0.0)
        try:
            write = call.do.resolve()
        except BackendError as error:
            answer.until, answer.error = self.clock.monotonic(), error
            return
        until = self._in(LANDING_SECONDS)
        self.under_way.append(UnderWay(actor.name, call.name, write, 0.05, until, answer))

    def _land(self, request: UnderWay) -> None:
        self.under_way.remove(request)
        answer = request.answer or Answer(request.name, 0.0)
        answer.until = self.clock.monotonic()
        with self.invariants.caused_by(request.owner, request.name):
            try:
                answer.result = request.land()
            except BackendError as error:
                answer.error = error

    def _land_what_is_due(self) -> None:
        for request in [r for r in self.under_way if r.until is not None]:
            if request.until is not None and request.until <= self.clock.monotonic() + 0.02:
                self._land(request)
                self._observe()

    def _pass_time(self) -> None:
        """Move on to when the next sleeper wakes; what must land before that lands."""
        self._advance_to(min(self._wakes()))

    def _wakes(self) -> list[float]:
        """When those that sleep or wait for an answer go on."""
        waiting = [a.waiting for a in self.actors if a.is_live and a.frozen_until <= self._at]
        return [w.until for w in waiting if isinstance(w, Sleep | Answer)]

    def _is_due(self, waiting: Sleep | Answer | None) -> bool:
        return waiting is None or waiting.until <= self.clock.monotonic()

    def _in(self, seconds: float) -> float:
        return self.clock.monotonic() + seconds

    def _advance_to(self, time: float) -> None:
        due = sorted(
            (r for r in self.under_way if r.until is not None and r.until <= time),
            key=lambda r: r.until or 0.0,
        )
        for request in due:
            self._land(request)
            self._observe()
        self.clock.advance(max(time - self.clock.monotonic(), 0.0))

    def _time_out(self) -> None:
        self._advance_to(self.clock.monotonic() + LEASE_SECONDS)
        self.conductor.decide(self.workflow_id)

    def _kill(self, actor: Actor) -> None:
        actor.kill()

    def _may_freeze(self, actor: Actor) -> bool:
        """Between the read of a claim and the post nothing but Conductor could help: a limit."""
        waiting = actor.waiting
        if not isinstance(waiting, Call) or waiting is actor.froze_before or _is_posting(actor):
            return False
        return not self.scenario.freezes_before or waiting.name in self.scenario.freezes_before

    def _freeze(self, actor: Actor) -> None:
        """Stop a process for a while, as a full machine or a suspended one does."""
        steps = (8, 30, _MOST_STEPS)[self.choices.pick("for how long", [1, 1, 1])]
        actor.frozen_until, actor.froze_before = self._at + steps, actor.waiting

    def _thaw(self, actor: Actor) -> None:
        actor.frozen_until = 0

    def _operate(self) -> None:
        """Requeue, terminate and rerun or retry, or restart, as an operator may at any time."""
        self._operations += 1
        what = self.choices.pick("operator", [1, 1, 1, 1])
        workflow = self.conductor.workflow(self.workflow_id)
        if what == 0:
            self.conductor.requeue(TASK)
            return
        if workflow.status == "RUNNING":
            self.conductor.terminate(self.workflow_id)
        self.invariants.reopened()
        if what == 1:
            self.conductor.rerun(self.workflow_id, workflow.tasks[-1].attempt.task_id)
        elif what == 2:
            self.conductor.retry(self.workflow_id)
        else:
            self.conductor.restart(self.workflow_id)

    def _person_commits(self) -> None:
        self._persons += 1
        with self.invariants.caused_by("a person", "commit"):
            key = f"data/person{self._persons}"
            made = self.lake.write_and_commit(REPOSITORY, BRANCH, {key: b"p"})
        self.invariants.person_committed(made)

    def _relocation_under_way(self) -> bool:
        """LakeFS relocates unconditionally: from the last look at HEAD on is a documented limit."""
        waiting = [a.waiting for a in self.actors if a.is_live]
        if any(isinstance(w, Answer) and w.name == "lake.get_head" for w in waiting):
            return True  # it may be that look
        names = [call.name for call in waiting if isinstance(call, Call)]
        return "lake.relocate" in names + [r.name for r in self.under_way]

    def _observe(self) -> None:
        self.invariants.observe(self.conductor.workflow(self.workflow_id))

    def _finish(self) -> None:
        for request in list(self.under_way):
            self._land(request)
            self._observe()
        for actor in self.actors:
            if actor.error is not None:
                raise AssertionError(f"{actor.name} raised {actor.error!r}") from actor.error


def simulate(
    *, seed: int | None = None, schedule: list[int] | None = None, **focus: Any
) -> Simulation:
    """Run one schedule to its end."""
    simulation = Simulation(Choices(seed=seed, schedule=schedule or []), **focus)
    try:
        simulation.run()
    finally:
        simulation.close()
    return simulation


def _next_of(actor: Actor) -> str:
    """What an execution does when it goes on."""
    match actor.waiting:
        case Call(name=name):
            return f"calls {name}"
        case Answer(name=name):
            return f"has the answer of {name}"
        case _:
            return "wakes"


def _is_posting(actor: Actor) -> bool:
    return isinstance(actor.waiting, Call) and actor.waiting.name == "attempts.complete"


def _nothing(_: Any, _warn: Callable[[str], None]) -> None:
    """No guardrail."""


def _bind(function: Callable[..., None], *args: Any) -> Callable[[], None]:
    return lambda: function(*args)


@contextmanager
def _tenacity_sleeps(clock: ManualClock) -> Iterator[None]:
    """Retries of the report wait on the simulated clock, and the same time in every run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "_WAIT", tenacity.wait_fixed(retry.FIRST_WAIT_SECONDS))
        patch.setattr(tenacity.nap, "time", SimpleNamespace(sleep=clock.sleep))
        yield
