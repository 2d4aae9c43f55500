"""The hard fence: a pre-merge hook that makes check-then-merge a compare-and-swap in the server.

LakeFS runs the hook inside its branch update, after the merge commit is made and before the
conditional write, and again whenever that write has to be retried. So when the hook has seen the
expected parent, no other commit can slip in between.
"""

from __future__ import annotations

from enum import StrEnum

from perago.protocol.names import ACTIONS_FOLDER

ACTION_PATH = f"{ACTIONS_FOLDER}perago_fence.yaml"

ACTION_TEXT = """\
name: perago_fence
description: refuse a merge whose commit does not sit on the head it expects
on:
  pre-merge:
hooks:
  - id: expected_head
    type: lua
    properties:
      script: |
        local expected = action.commit.metadata["perago.expected_head"]
        if expected ~= nil and expected ~= action.commit.parents[1] then
          error("perago fence: expected " .. expected .. ", found " .. action.commit.parents[1])
        end
"""


class FenceState(StrEnum):
    """What a commit has at the fence's path."""

    INSTALLED = "installed"
    OUTDATED = "outdated"
    FOREIGN = "foreign"
    MISSING = "missing"


def fence_state(content: bytes) -> FenceState:
    """Only the very text is the fence: an edited copy may let through what it should refuse."""
    if content == ACTION_TEXT.encode():
        return FenceState.INSTALLED
    # Every version of ours begins with its name.
    ours = content.startswith(b"name: perago_fence\n")
    return FenceState.OUTDATED if ours else FenceState.FOREIGN
