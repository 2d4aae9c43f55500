"""The workspace transaction as a state machine: Conductor, LakeFS, the executions of one task.

An execution that crashes, freezes or is slow for ever is one that takes no further step: every
schedule is explored, so every execution stops everywhere. Conductor may move on at any moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["changes", "no-op"]


@dataclass(frozen=True)
class Scenario:
    """Say which executions there are and what else happens around them."""

    executions: tuple[Kind, ...]
    # The execution that begins another logical task: the next step if the first was completed,
    # else (it failed or was terminated) a new workflow from the current HEAD.
    second_task_from: int | None = None
    # An execution before these published, died and left its commit at HEAD.
    abandoned: bool = False
    # The pre-merge hook compares the expected HEAD with the real one inside the branch update.
    hard_fence: bool = False
    # Once, at any moment: a person commits on the target, with a change or without one.
    person: Literal["never", "changes", "empty"] = "never"
    replacement: Literal["provenance", "head-state"] = "provenance"
    # Once, at any moment: another program commits on a staging branch.
    stray_writer: bool = False
    # Garbage collection deletes the staging branches of attempts that are over.
    gc: bool = False
    # Conductor delivers the same task id again (requeue, rerun; also after a completion), instead
    # of a retry with a new one. It then accepts a post from any claim.
    redelivery: bool = False
    # No redelivery happens between the last read of the claim and the post.
    claim_stands_while_posting: bool = False

    def __str__(self) -> str:
        executions: list[str] = list(self.executions)
        if self.second_task_from is not None:
            executions.insert(self.second_task_from, "then another task:")
        extras = [
            (self.abandoned, "abandoned commit"),
            (self.hard_fence, "hard fence"),
            (self.person != "never", f"person commits ({self.person})"),
            (self.replacement != "provenance", self.replacement),
            (self.stray_writer, "stray writer"),
            (self.gc, "gc"),
            (self.redelivery, "redelivery"),
            (self.claim_stands_while_posting, "claim stands while posting"),
        ]
        return "; ".join(
            [", ".join(executions).replace(":,", ":"), *(text for here, text in extras if here)]
        )


@dataclass(frozen=True)
class Rules:
    """Name the protections of the protocol; a mutant leaves one out."""

    first_fence: bool = True
    second_fence: bool = True
    third_fence_of_no_op: bool = True
    third_fence_of_changes: bool = True
    licence_before_last_fence: bool = True
    source_is_branch: bool = True
    withdraw_others: bool = True
    no_op_withdraws: bool = True
    withdraw_after_fence: bool = True
    # Off: only the licences of earlier executions are withdrawn.
    withdraw_later_ones: bool = True
    # Off: only the licences of the same logical task are withdrawn, not all of the same target.
    withdraw_other_tasks: bool = True
    head_read_after_withdrawal: bool = True
    # When HEAD is read only after the time a merge may take: if a licence was found or has left a
    # withdrawn tag; if one was found; if there was an earlier execution at all; never.
    wait: Literal["found or tag", "found", "earlier execution", "never"] = "found or tag"
    # Off: only what was committed is tagged, so an empty licence goes without a trace.
    tag_empty_licences: bool = True
    gc_leaves_withdrawn_tag: bool = True
    provenance: bool = True
    veto_of_later_attempts: bool = True
    tag_before_relocation: bool = True
    reread_head: bool = True
    readback_parent: bool = True
    readback_diff: bool = True
    withdraw_own_after_lost_reply: bool = True
    wait_after_own_withdrawal: bool = True
    # "It has not landed" is said only if HEAD is still the commit that the plan was made for.
    not_landed_only_if_head_unmoved: bool = True
    claim_check_before_post: bool = True


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
        "list licences",
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
# What the protocol claims, by the numbers of its invariants, and what goes further.
CLAIMED = frozenset({"1", "3", "4", "5", "7", "9", "10", "outcome"})
FURTHER = frozenset({"1 always", "7 by count", "10 always", "live licence"})

COMPLETES = "{it} posts COMPLETED and Conductor accepts it"
SAYS_NOT_LANDED = "{it} reads HEAD after the wait and reports that its request has not landed"
WITHDRAWS = "{it} withdraws the licence of {other}"


class Transaction:
    """Give the moves of one scenario under some rules, and watch some of the properties."""

    def __init__(
        self,
        scenario: Scenario,
        rules: Rules | None = None,
        watched: frozenset[str] = CLAIMED,
    ) -> None:
        self.scenario = scenario
        self.rules = rules or Rules()
        self.watched = watched
        self.count = len(scenario.executions)
        self.old, self.someone, self.stray = range(self.count, self.count + 3)
        self.commits: list[Commit] = []
        self.ids: dict[Commit, int] = {}
        self.lineage: list[frozenset[int]] = []
        self.commit(Commit(-1, 0, -1, "input"))
        self.steps: dict[str, Callable[[State, int, Execution], list[Move]]] = {
            "first fence": self.first_fence,
            "make licence": self.make_licence,
            "stage": self.stage,
            "second fence": self.second_fence,
            "list licences": self.list_licences,
            "withdraw licences": self.withdraw_licences,
            "read HEAD": self.read_head,
            "third fence": self.third_fence,
            "read HEAD again": self.read_head_again,
            "await reply": self.await_reply,
            "wait for own request": self.wait_for_own_request,
            "read the claim": self.read_the_claim,
            "post": self.post,
        }

    def initial(self) -> State:
        head = ROOT
        if self.scenario.abandoned:
            head = self.commit(Commit(ROOT, 1 << self.old, self.old, "merged"))
        waiting = (Execution(),) * (self.count - 1)
        return State(
            head=head,
            claim=0,
            completed=-1,
            person_to_come=self.scenario.person != "never",
            stray_to_come=self.scenario.stray_writer,
            person_kept_by_tag=False,
            executions=(Execution("first fence", ROOT), *waiting),
        )

    def moves(self, s: State) -> list[Move]:
        moves: list[Move] = []
        for i, e in enumerate(s.executions):
            step = self.steps.get(e.at)
            if step is not None:
                moves += step(s, i, e)
            if e.licence in EXISTING:
                moves += self.branch_moves(s, i, e)
            if e.request.phase == SENT:
                moves += self.resolve(s, i, e)
            elif e.request.phase == RESOLVED:
                moves += self.write(s, i, e)
        if s.claim + 1 < self.count:
            moves += self.conductor_moves_on(s)
        if s.person_to_come:
            moves.append(self.person_commits(s))
        return moves

    def may_rest(self, s: State) -> bool:
        return all(e.at in OUTCOMES or e.at == "idle" for e in s.executions)

    def conductor_moves_on(self, s: State) -> list[Move]:
        last, following = s.claim, s.claim + 1
        over = s.completed == last
        ref = s.executions[last].ref
        if self.scenario.second_task_from == following:
            if over:
                text, ref = "the next step starts: {other}, from {its} output", self.output(s, last)
            else:
                text, ref = "the workflow fails; a new one starts from HEAD: {other}", s.head
        elif not over:
            text = "{its} attempt times out; {other} starts"
        elif self.scenario.redelivery:
            text = "the completed task is run again: {other} starts"
        else:
            return []
        after = change(s._replace(claim=following), following, Execution("first fence", ref))
        return [(Event(text, last, following), after)]

    # What an execution does, in this order.

    def first_fence(self, s: State, i: int, e: Execution) -> list[Move]:
        if self.scenario.executions[i] == "no-op":
            onward = "list licences"
        elif self.rules.licence_before_last_fence:
            onward = "make licence"
        else:
            onward = "second fence"
        return self.fence(s, i, e, "first", onward, self.rules.first_fence)

    def make_licence(self, s: State, i: int, e: Execution) -> list[Move]:
        if self.scenario.executions[i] == "changes":
            onward = "stage"
        elif self.rules.licence_before_last_fence:
            onward = "third fence"
        else:
            onward = "read HEAD again"
        event = Event("{it} makes its licence: a staging branch at the input", i)
        return [(event, change(s, i, e._replace(at=onward, licence=AT_INPUT)))]

    def stage(self, s: State, i: int, e: Execution) -> list[Move]:
        if e.licence not in EXISTING:
            event = Event("{it} finds its staging branch gone and stops", i)
            return [(event, change(s, i, e._replace(at=STALE)))]
        if not self.rules.licence_before_last_fence or not self.rules.withdraw_after_fence:
            onward = "list licences"
        else:
            onward = "second fence"
        event = Event("{it} stages its result and commits it on its staging branch", i)
        return [(event, change(s, i, e._replace(at=onward, licence=COMMITTED)))]

    def second_fence(self, s: State, i: int, e: Execution) -> list[Move]:
        if not self.rules.licence_before_last_fence:
            onward = "make licence"
        elif not self.rules.withdraw_after_fence:
            onward = "read HEAD"
        else:
            onward = "list licences"
        return self.fence(s, i, e, "second", onward, self.rules.second_fence)

    def list_licences(self, s: State, i: int, e: Execution) -> list[Move]:
        rules = self.rules
        found = gone = 0
        if rules.withdraw_others and (
            rules.no_op_withdraws or self.scenario.executions[i] != "no-op"
        ):
            for k, other in enumerate(s.executions):
                if k == i or (k > i and not rules.withdraw_later_ones):
                    continue
                if self.task_of(k) == self.task_of(i) or rules.withdraw_other_tasks:
                    found |= (other.licence in EXISTING) << k
                    gone |= (other.licence == WITHDRAWN) << k
        to_await = {
            "found or tag": found | gone,
            "found": found,
            "earlier execution": (1 << i) - 1,
            "never": 0,
        }[rules.wait]
        e = e._replace(
            at="withdraw licences" if found else self.after_withdrawal(i),
            plan=-1 if rules.head_read_after_withdrawal else s.head,
            to_withdraw=found,
            to_await=to_await,
        )
        text = "{it} lists the licences of others"
        text += ": some exist" if found else ": none, but a withdrawn tag" if gone else ": none"
        return [(Event(text, i), change(s, i, e))]

    def withdraw_licences(self, s: State, i: int, e: Execution) -> list[Move]:
        k = (e.to_withdraw & -e.to_withdraw).bit_length() - 1
        left = e.to_withdraw & ~(1 << k)
        at = e.at if left else self.after_withdrawal(i)
        after = change(s, i, e._replace(at=at, to_withdraw=left))
        other = s.executions[k]
        if other.licence in EXISTING:
            after = change(after, k, other._replace(licence=self.withdrawn(other)))
        return [(Event(WITHDRAWS, i, k), after)]

    def withdrawn(self, e: Execution) -> str:
        tagged = self.rules.tag_empty_licences or e.licence != AT_INPUT
        return WITHDRAWN if tagged else CLEANED

    def after_withdrawal(self, i: int) -> str:
        if self.rules.withdraw_after_fence or self.scenario.executions[i] == "no-op":
            return "read HEAD"
        return "second fence"

    def read_head(self, s: State, i: int, e: Execution) -> list[Move]:
        """Wait as long as a merge may take, read HEAD, plan; a merge is sent at once.

        Sending at once loses no schedule: LakeFS may look at the request arbitrarily late.
        """
        for k, other in enumerate(s.executions):
            if e.to_await >> k & 1 and other.request.phase == RESOLVED:
                return []
        head = s.head if self.rules.head_read_after_withdrawal else e.plan
        e = e._replace(plan=head, to_await=0)
        changes = self.scenario.executions[i] == "changes"
        text = "{it} reads HEAD: "
        if head == e.ref and changes:
            text += "the input; it sends its merge"
            return [(Event(text, i), self.send(s, i, e, MERGE))]
        if head == e.ref:
            text += "the input; it has nothing to publish"
            return [(Event(text, i), change(s, i, e._replace(at="read the claim")))]
        if not self.may_replace(head, i, e.ref):
            text += "not explained; it fails"
            return [(Event(text, i), change(s, i, e._replace(at=UNEXPLAINED)))]
        if self.rules.tag_before_relocation and self.commits[head].maker == self.someone:
            s = s._replace(person_kept_by_tag=True)
        text += "one commit past the input; it tags that commit and plans to relocate"
        licence_next = not changes and self.rules.licence_before_last_fence
        at = "make licence" if licence_next else "third fence"
        return [(Event(text, i), change(s, i, e._replace(at=at)))]

    def may_replace(self, head: int, i: int, ref: int) -> bool:
        commit = self.commits[head]
        if commit.parent != ref:
            return False
        if self.rules.veto_of_later_attempts and i < commit.maker < self.count:
            return False
        ours = commit.maker <= self.old and self.task_of(commit.maker) == self.task_of(i)
        return ours or self.scenario.replacement == "head-state" or not self.rules.provenance

    def task_of(self, i: int) -> int:
        second = self.scenario.second_task_from
        return int(second is not None and second <= i < self.count)

    def third_fence(self, s: State, i: int, e: Execution) -> list[Move]:
        licence_next = e.licence == "none" and not self.rules.licence_before_last_fence
        onward = "make licence" if licence_next else "read HEAD again"
        changes = self.scenario.executions[i] == "changes"
        rules = self.rules
        checked = rules.third_fence_of_changes if changes else rules.third_fence_of_no_op
        return self.fence(s, i, e, "third", onward, checked)

    def read_head_again(self, s: State, i: int, e: Execution) -> list[Move]:
        if s.head != e.plan and self.rules.reread_head:
            event = Event("{it} reads HEAD again: it has moved; it fails", i)
            return [(event, change(s, i, e._replace(at=UNEXPLAINED)))]
        event = Event("{it} reads HEAD again and sends its relocation", i)
        return [(event, self.send(s, i, e, RELOCATION))]

    def send(self, s: State, i: int, e: Execution, by: str) -> State:
        request = Request(by, SENT, over_person=self.has_person(s.head))
        return change(s, i, e._replace(at="await reply", request=request))

    def await_reply(self, s: State, i: int, e: Execution) -> list[Move]:
        moves: list[Move] = []
        if e.request.phase == LANDED:
            moves.append(self.read_back(s, i, e, "gets the reply"))
        elif e.request.phase == REFUSED:
            event = Event("{it} gets the reply that its request was refused", i)
            moves.append((event, change(s, i, e._replace(at="refused"))))
        e = e._replace(at="wait for own request")
        if not self.rules.withdraw_own_after_lost_reply:
            event = Event("{it} loses the reply", i)
        else:
            event = Event("{it} loses the reply and withdraws its own licence", i)
            if e.licence in EXISTING:
                e = e._replace(licence=self.withdrawn(e))
        moves.append((event, change(s, i, e)))
        return moves

    def wait_for_own_request(self, s: State, i: int, e: Execution) -> list[Move]:
        if e.request.phase == RESOLVED and self.rules.wait_after_own_withdrawal:
            return []
        head = self.commits[s.head]
        if e.request.moves_by == MERGE:
            landed = head.maker == i and head.how == "merged"
        else:
            landed = s.head == self.staged(i, e.ref)
        if landed:
            return [self.read_back(s, i, e, "finds its own commit at HEAD")]
        if s.head == e.plan or not self.rules.not_landed_only_if_head_unmoved:
            return [(Event(SAYS_NOT_LANDED, i), change(s, i, e._replace(at=NOT_LANDED)))]
        event = Event("{it} finds another commit at HEAD: outcome unknown", i)
        return [(event, change(s, i, e._replace(at="unknown outcome")))]

    def read_back(self, s: State, i: int, e: Execution, how: str) -> Move:
        """Compare what was published with the input and the staged commit.

        The reply to a merge names the commit; that to a relocation does not, so HEAD is read.
        """
        published = e.request.commit if e.request.moves_by == MERGE else s.head
        commit = self.commits[published]
        if self.scenario.executions[i] == "no-op":
            good = published == e.ref
        else:
            good = (commit.parent == e.ref or not self.rules.readback_parent) and (
                commit.content == self.result(i, e.ref) or not self.rules.readback_diff
            )
        if good:
            event = Event("{it} " + how + "; the published commit is as it should be", i)
            return event, change(s, i, e._replace(at="read the claim", plan=published))
        event = Event("{it} " + how + "; the published commit is not as it should be: it fails", i)
        return event, change(s, i, e._replace(at="mixed publication"))

    def read_the_claim(self, s: State, i: int, e: Execution) -> list[Move]:
        if self.rules.claim_check_before_post and not self.is_current(s, i):
            event = Event("{it} reads that the claim is no longer its own and posts nothing", i)
            return [(event, change(s, i, e._replace(at="claim lost")))]
        if self.scenario.claim_stands_while_posting:
            return self.post(s, i, e)
        event = Event("{it} reads the claim: still its own", i)
        return [(event, change(s, i, e._replace(at="post")))]

    def post(self, s: State, i: int, e: Execution) -> list[Move]:
        """Post COMPLETED. Conductor checks the task id alone, which a redelivery keeps."""
        same_task_id = s.claim == i or (
            self.scenario.redelivery and self.task_of(s.claim) == self.task_of(i)
        )
        if same_task_id and s.completed < s.claim:
            after = change(s._replace(completed=i), i, e._replace(at=COMPLETED))
            return [(Event(COMPLETES, i), after)]
        event = Event("{it} posts COMPLETED and Conductor ignores it", i)
        return [(event, change(s, i, e._replace(at="post ignored")))]

    def fence(
        self, s: State, i: int, e: Execution, which: str, onward: str, checked: bool
    ) -> list[Move]:
        if checked and not self.is_current(s, i):
            event = Event("{it} is found stale by its " + which + " attempt fence", i)
            return [(event, change(s, i, e._replace(at=STALE)))]
        text = " passes its " if checked else " skips its "
        event = Event("{it}" + text + which + " attempt fence", i)
        return [(event, change(s, i, e._replace(at=onward)))]

    def is_current(self, s: State, i: int) -> bool:
        return s.claim == i and s.completed < i

    # What LakeFS does with a request, however late.

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
        if s.head != request.basis:
            event = Event("LakeFS finds HEAD moved under {its} " + request.moves_by, i)
            again = request._replace(phase=SENT, basis=-1, commit=-1)
            return [*moves, (event, change(s, i, e._replace(request=again)))]
        head = request.commit
        if request.moves_by == MERGE:
            # Disjoint changes: the worst case. Equal paths would be a conflict and refused.
            content = self.commits[s.head].content | self.commits[head].content
            head = self.commit(Commit(s.head, content, i, "merged"))
        landed = request._replace(phase=LANDED, basis=-1, commit=head)
        after = change(s._replace(head=head), i, e._replace(request=landed))
        return [*moves, (Event(LANDS[request.moves_by], i), after)]

    # What happens to a staging branch, and to the target, from outside.

    def branch_moves(self, s: State, i: int, e: Execution) -> list[Move]:
        moves: list[Move] = []
        if e.at in AFTERWARDS:
            event = Event("{it} deletes its staging branch: its outcome is known", i)
            moves.append((event, change(s, i, e._replace(licence=CLEANED))))
        elif e.at in BEFORE_REQUEST:
            event = Event("{it} fails (an outage) and deletes its staging branch", i)
            failed = Execution("failed", e.ref, CLEANED)
            moves.append((event, change(s, i, failed)))
        if self.scenario.gc and not self.is_current(s, i):
            gone = self.withdrawn(e) if self.rules.gc_leaves_withdrawn_tag else CLEANED
            event = Event("gc deletes the staging branch of {it}", i)
            moves.append((event, change(s, i, e._replace(licence=gone))))
        if s.stray_to_come and e.licence == COMMITTED:
            event = Event("another program commits on the staging branch of {it}", i)
            after = s._replace(stray_to_come=False)
            moves.append((event, change(after, i, e._replace(licence=SPOILED))))
        return moves

    def result(self, i: int, ref: int) -> int:
        return self.commits[ref].content | 1 << i

    def staged(self, i: int, ref: int) -> int:
        if self.scenario.executions[i] == "no-op":
            return ref
        return self.commit(Commit(ref, self.result(i, ref), i, "staged"))

    def spoiled(self, i: int, ref: int) -> int:
        content = self.result(i, ref) | 1 << self.stray
        return self.commit(Commit(self.staged(i, ref), content, self.stray, "staged"))

    def output(self, s: State, i: int) -> int:
        return s.executions[i].plan

    def person_commits(self, s: State) -> Move:
        change_ = 1 << self.someone if self.scenario.person == "changes" else 0
        content = self.commits[s.head].content | change_
        head = self.commit(Commit(s.head, content, self.someone, "by hand"))
        return Event("a person commits on the target"), s._replace(head=head, person_to_come=False)

    # What must hold.

    def objection(self, before: State, event: Event, after: State) -> str | None:
        for broken in self.objections(before, event, after):
            if broken in self.watched:
                return broken
        return None

    def objections(self, before: State, event: Event, after: State) -> list[str]:
        text, i, k = event
        if text == LANDS[MERGE] or text == LANDS[RELOCATION]:
            return self.against_landing(before, i, after)
        if text == COMPLETES:
            return self.against_completion(before, i)
        if text == SAYS_NOT_LANDED:
            request = before.executions[i].request
            landed = request.phase == LANDED and request.commit in self.lineage[before.head]
            return ["outcome"] if landed else []
        if text == WITHDRAWS and self.is_current(before, k):
            return ["live licence"] if before.executions[k].licence in EXISTING else []
        return []

    def against_landing(self, before: State, i: int, after: State) -> list[str]:
        scenario = self.scenario
        e = after.executions[i]
        merge = e.request.moves_by == MERGE
        broken: list[str] = []
        if after.head != e.ref and self.commits[after.head].content != self.result(i, e.ref):
            # A soft fence cannot keep others off; then the read-back must see it (3).
            outsider = scenario.person != "never" and not (merge and scenario.hard_fence)
            broken.append("1 always" if outsider or scenario.stray_writer else "1")
        if e.at == STALE:
            broken.append("4")
        if e.at == UNEXPLAINED:
            broken.append("5")
        if merge and scenario.hard_fence and before.head != e.ref:
            broken.append("7")
        if merge and sum(x.request[:2] == (MERGE, LANDED) for x in after.executions) > 1:
            broken.append("7 by count")
        if i <= before.completed:
            broken.append("9")
        if self.has_person(before.head) and not self.has_person(after.head):
            # Relocation is unconditional: what comes after the last look at HEAD is in its window.
            kept = scenario.replacement == "head-state" and before.person_kept_by_tag
            seen = e.request.over_person
            broken.append("10" if seen and not kept else "10 always")
        if e.at == NOT_LANDED:
            broken.append("outcome")
        return broken

    def against_completion(self, before: State, i: int) -> list[str]:
        e = before.executions[i]
        output = self.output(before, i)
        commit = self.commits[output]
        broken: list[str] = []
        one_past = commit.parent == e.ref and commit.content == self.result(i, e.ref)
        displaced = before.head != output and self.scenario.person == "never"
        if (output != e.ref and not one_past) or displaced:
            broken.append("3")
        if before.claim != i:
            broken.append("4")
        return broken

    def has_person(self, head: int) -> bool:
        return any(self.commits[c].maker == self.someone for c in self.lineage[head])

    def commit(self, commit: Commit) -> int:
        known = self.ids.get(commit)
        if known is None:
            known = self.ids[commit] = len(self.commits)
            self.commits.append(commit)
            above = self.lineage[commit.parent] if commit.parent >= 0 else frozenset()
            self.lineage.append(above | {known})
        return known


def change(s: State, i: int, e: Execution) -> State:
    executions = s.executions
    return s._replace(executions=(*executions[:i], e, *executions[i + 1 :]))


def refused(e: Execution) -> Execution:
    return e._replace(request=Request(e.request.moves_by, REFUSED))
