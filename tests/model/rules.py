"""What happens in a scenario, and the protections of the protocol: a mutant leaves one out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    # No reply is lost that LakeFS sends, and none is given up.
    replies_arrive: bool = False
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
            (self.replies_arrive, "every reply arrives"),
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
    """Name the protections, in the order in which an execution meets them."""

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
    # Off: the tags of earlier withdrawals are listed first, then the branches.
    tags_listed_after_branches: bool = True
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
    # Off: the reading of HEAD that counts may begin before the wait is over and end after it.
    wait_before_own_reading: bool = True
    # "It has not landed" is said only if HEAD is still the commit that the plan was made for.
    not_landed_only_if_head_unmoved: bool = True
    claim_check_before_post: bool = True
    # What LakeFS does, not what we do: how much depends on it.
    conditional_write: bool = True
    source_resolved_again: bool = True
