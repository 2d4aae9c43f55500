"""The hard fence: a pre-merge hook that makes a merge a compare-and-swap on the server.

LakeFS runs the hook inside its branch update, after the merge commit is made and before the
conditional write, and again on every retry of that write. So no other commit can land between
the hook's check of the expected parent and the merge.
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
    """The state of the action file in a commit."""

    INSTALLED = "installed"
    OUTDATED = "outdated"
    FOREIGN = "foreign"
    MISSING = "missing"


def fence_state(content: bytes) -> FenceState:
    """Compare an action file with the fence: an edited copy might let a merge pass."""
    if content == ACTION_TEXT.encode():
        return FenceState.INSTALLED
    # Every version of the fence begins with its name.
    ours = content.startswith(b"name: perago_fence\n")
    return FenceState.OUTDATED if ours else FenceState.FOREIGN
