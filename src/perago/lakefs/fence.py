"""The hard fence: a pre-merge hook that makes a merge a compare-and-swap on the server.

LakeFS runs the hook inside its branch update, after the merge commit is made and before the
conditional write, and again on every retry of that write. So no other commit can land between
the hook's check of the expected parent and the merge.
"""

from __future__ import annotations

from enum import StrEnum

from perago.names import ACTIONS_FOLDER

ACTION_PATH = f"{ACTIONS_FOLDER}perago_fence.yaml"

# An input is pinned to a commit with the text of its day, so texts are added and never changed.
# Each must refuse what the others refuse.
_TEXT = """\
name: perago_fence
description: {description}
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
_WHAT = "refuse a merge whose commit does not sit on the head it expects"
ACTION_TEXTS = {
    1: _TEXT.format(description=_WHAT),
    2: _TEXT.format(description=f"{_WHAT} (version 2)"),
}
ACTION_TEXT = ACTION_TEXTS[max(ACTION_TEXTS)]
LONGEST_ACTION = max(len(text) for text in ACTION_TEXTS.values())


class FenceState(StrEnum):
    """The state of the action file in a commit."""

    INSTALLED = "installed"
    OUTDATED = "outdated"
    EDITED = "edited"
    FOREIGN = "foreign"
    MISSING = "missing"

    @property
    def fences(self) -> bool:
        """Whether the file is a text of ours, and so refuses a merge on a wrong head."""
        return self in (FenceState.INSTALLED, FenceState.OUTDATED)


def fence_state(content: bytes) -> FenceState:
    """Compare an action file with the fence's versions: an edited copy might let a merge pass."""
    if content == ACTION_TEXT.encode():
        return FenceState.INSTALLED
    if any(content == text.encode() for text in ACTION_TEXTS.values()):
        return FenceState.OUTDATED
    # Every version of the fence begins with its name.
    ours = content.startswith(b"name: perago_fence\n")
    return FenceState.EDITED if ours else FenceState.FOREIGN
