"""The workspace transaction as a state machine: Conductor, LakeFS, the executions of one task.

An execution that crashes, freezes or is slow for ever is one that takes no further step: every
schedule is explored, so every execution stops everywhere. Conductor may move on at any moment.
"""

from __future__ import annotations

from collections.abc import Callable

from model.lake import Lake
from model.rules import Rules, Scenario
from model.state import (
    AFTERWARDS,
    AT_INPUT,
    BEFORE_REQUEST,
    CLEANED,
    COMMITTED,
    COMPLETED,
    COMPLETES,
    DROPPED,
    EXISTING,
    LANDED,
    MERGE,
    NOT_LANDED,
    OUTCOMES,
    REFUSED,
    RELOCATION,
    RESOLVED,
    ROOT,
    SAYS_NOT_LANDED,
    SAYS_SO_LATER,
    SENT,
    SPOILED,
    STALE,
    UNEXPLAINED,
    WITHDRAWN,
    WITHDRAWS,
    Commit,
    Event,
    Execution,
    Move,
    Request,
    State,
    change,
)


class Transaction(Lake):
    """Give the initial state of one scenario and the moves under some rules."""

    def __init__(self, scenario: Scenario, rules: Rules) -> None:
        super().__init__(scenario, rules)
        self.steps: dict[str, Callable[[State, int, Execution], list[Move]]] = {
            "first fence": self.first_fence,
            "make licence": self.make_licence,
            "stage": self.stage,
            "second fence": self.second_fence,
            "list branches": self.list_branches,
            "list tags": self.list_tags,
            "withdraw licences": self.withdraw_licences,
            "read HEAD": self.read_head,
            "third fence": self.third_fence,
            "read HEAD again": self.read_head_again,
            "await reply": self.await_reply,
            "wait for own request": self.wait_for_own_request,
            "wait with HEAD read": self.wait_with_head_read,
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
                text, ref = "{other} starts the next step from {its} output", self.output(s, last)
            else:
                text, ref = "the workflow fails and {other} starts a new one from HEAD", s.head
        elif not over:
            text = "{its} attempt times out and {other} starts"
        elif self.scenario.redelivery:
            text = "the completed task is run again and {other} starts"
        else:
            return []
        after = change(s._replace(claim=following), following, Execution("first fence", ref))
        return [(Event(text, last, following), after)]

    # What an execution does, in this order.

    def first_fence(self, s: State, i: int, e: Execution) -> list[Move]:
        if self.scenario.executions[i] == "no-op":
            onward = self.look_for_licences(i)
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
            onward = self.look_for_licences(i)
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
            onward = self.look_for_licences(i)
        return self.fence(s, i, e, "second", onward, self.rules.second_fence)

    def list_branches(self, s: State, i: int, e: Execution) -> list[Move]:
        """Look for the licences of others; their tags are listed by a request of its own."""
        found = sum(1 << k for k in self.looked_for(i) if s.executions[k].licence in EXISTING)
        to_await = {
            "found or tag": e.to_await | found,
            "found": found,
            "earlier execution": (1 << i) - 1,
            "never": 0,
        }[self.rules.wait]
        e = e._replace(
            plan=-1 if self.rules.head_read_after_withdrawal else s.head,
            to_withdraw=found,
            to_await=to_await,
        )
        e = e._replace(at="withdraw licences" if found else self.after_withdrawal(i, e))
        looks = self.looks(i)
        text = "{it} lists the licences of others" if looks else "{it} looks for no licences"
        if looks:
            text += ": some exist" if found else ": none"
        return [(Event(text, i), change(s, i, e))]

    def list_tags(self, s: State, i: int, e: Execution) -> list[Move]:
        """Look for what others have withdrawn: it is waited for like a licence that was found."""
        gone = sum(1 << k for k in self.looked_for(i) if s.executions[k].licence == WITHDRAWN)
        e = e._replace(to_await=e.to_await | gone)
        after_branches = self.rules.tags_listed_after_branches
        e = e._replace(at=self.after_listing(i) if after_branches else "list branches")
        text = "{it} lists withdrawn tags: " + ("some exist" if gone else "none")
        return [(Event(text, i), change(s, i, e))]

    def looks(self, i: int) -> bool:
        no_op = self.scenario.executions[i] == "no-op"
        return self.rules.withdraw_others and (self.rules.no_op_withdraws or not no_op)

    def looked_for(self, i: int) -> list[int]:
        """Return the executions whose licences execution i withdraws, if they have one."""
        rules = self.rules
        return [
            k
            for k in range(self.count)
            if self.looks(i)
            and k != i
            and (k < i or rules.withdraw_later_ones)
            and (self.task_of(k) == self.task_of(i) or rules.withdraw_other_tasks)
        ]

    def withdraw_licences(self, s: State, i: int, e: Execution) -> list[Move]:
        k = (e.to_withdraw & -e.to_withdraw).bit_length() - 1
        left = e.to_withdraw & ~(1 << k)
        at = e.at if left else self.after_withdrawal(i, e)
        after = change(s, i, e._replace(at=at, to_withdraw=left))
        other = s.executions[k]
        if other.licence in EXISTING:
            after = change(after, k, other._replace(licence=self.withdrawn(other)))
        return [(Event(WITHDRAWS, i, k), after)]

    def withdrawn(self, e: Execution) -> str:
        tagged = self.rules.tag_empty_licences or e.licence != AT_INPUT
        return WITHDRAWN if tagged else CLEANED

    def look_for_licences(self, i: int) -> str:
        tags_first = not self.rules.tags_listed_after_branches
        return "list tags" if tags_first and self.looked_for(i) else "list branches"

    def after_withdrawal(self, i: int, e: Execution) -> str:
        """List the tags, unless they are of no account: all others are waited for already."""
        to_list = self.rules.wait == "found or tag" and self.rules.tags_listed_after_branches
        if to_list and any(not e.to_await >> k & 1 for k in self.looked_for(i)):
            return "list tags"
        return self.after_listing(i)

    def after_listing(self, i: int) -> str:
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
        text = "{it} reads HEAD "
        if head == e.ref and changes:
            text += "(the input) and sends its merge"
            return [(Event(text, i), self.send(s, i, e, MERGE))]
        if head == e.ref:
            text += "(the input) and has nothing to publish"
            return [(Event(text, i), change(s, i, e._replace(at="read the claim")))]
        if not self.may_replace(head, i, e.ref):
            text += "(not explained) and fails"
            return [(Event(text, i), change(s, i, e._replace(at=UNEXPLAINED)))]
        if self.rules.tag_before_relocation and self.commits[head].maker == self.someone:
            s = s._replace(person_kept_by_tag=True)
        tag = ", tags it" if self.rules.tag_before_relocation else ""
        text += "(one past the input)" + tag + " and plans to relocate"
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
            event = Event("{it} reads HEAD again (moved) and fails", i)
            return [(event, change(s, i, e._replace(at=UNEXPLAINED)))]
        if not self.rules.reread_head:
            event = Event("{it} sends its relocation", i)
        else:
            event = Event("{it} reads HEAD again (unmoved) and sends its relocation", i)
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
        if self.scenario.replies_arrive and e.request.phase != DROPPED:
            return moves
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
        """See that the time a merge may take has passed, and only then read HEAD.

        That is one step, since what was seen stays true: the licence is withdrawn by then, and a
        request that is not about to write never will be. A schedule between the two is one with a
        later first half. The other way round they are two steps.
        """
        rules = self.rules
        waits = rules.wait_after_own_withdrawal and rules.wait_before_own_reading
        if e.request.phase == RESOLVED and waits:
            return []
        head = self.commits[s.head]
        if e.request.moves_by == MERGE:
            landed = head.maker == i and head.how == "merged"
        else:
            landed = s.head == self.staged(i, e.ref)
        if landed:
            return [self.read_back(s, i, e, "finds its own commit at HEAD")]
        if s.head == e.plan and not rules.wait_before_own_reading:
            event = Event("{it} reads HEAD: its request has not landed yet", i)
            return [(event, change(s, i, e._replace(at="wait with HEAD read")))]
        if s.head == e.plan or not rules.not_landed_only_if_head_unmoved:
            return [(Event(SAYS_NOT_LANDED, i), change(s, i, e._replace(at=NOT_LANDED)))]
        event = Event("{it} finds another commit at HEAD: outcome unknown", i)
        return [(event, change(s, i, e._replace(at="unknown outcome")))]

    def wait_with_head_read(self, s: State, i: int, e: Execution) -> list[Move]:
        if e.request.phase == RESOLVED:
            return []
        return [(Event(SAYS_SO_LATER, i), change(s, i, e._replace(at=NOT_LANDED)))]

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
            event = Event("{it} " + how + " and reads back its result", i)
            return event, change(s, i, e._replace(at="read the claim", plan=published))
        event = Event("{it} " + how + ", reads back something else and fails", i)
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

    def output(self, s: State, i: int) -> int:
        return s.executions[i].plan
