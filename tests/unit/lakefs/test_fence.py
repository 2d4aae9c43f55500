from __future__ import annotations

import hashlib

import pytest

from perago.lakefs.fence import ACTION_TEXT, ACTION_TEXTS, FenceState, fence_state

FIRST_TEXT = "9af9091ccc6f482f610faa02177d306bbf1b449f001760218b57db11143ece50"


def test_the_newest_text_is_the_installed_fence() -> None:
    assert fence_state(ACTION_TEXT.encode()) is FenceState.INSTALLED
    assert FenceState.INSTALLED.fences


def test_inputs_pinned_with_an_earlier_text_stay_fenced() -> None:
    # A text that was once released is never edited, or the inputs of its day are stranded.
    earlier = ACTION_TEXTS[1].encode()
    assert hashlib.sha256(earlier).hexdigest() == FIRST_TEXT
    assert fence_state(earlier) is FenceState.OUTDATED
    assert FenceState.OUTDATED.fences


@pytest.mark.parametrize(
    "text",
    [
        ACTION_TEXT + "\n",
        ACTION_TEXT[:-1],
        ACTION_TEXT.replace("~=", "=="),
        ACTION_TEXT.replace("pre-merge", "post-merge"),
    ],
)
def test_an_edited_fence_fences_nothing(text: str) -> None:
    assert fence_state(text.encode()) is FenceState.EDITED
    assert not FenceState.EDITED.fences


@pytest.mark.parametrize("text", ["", "name: other\n", "name: perago_fence_of_mine\n"])
def test_anything_else_at_its_path_is_foreign(text: str) -> None:
    assert fence_state(text.encode()) is FenceState.FOREIGN
