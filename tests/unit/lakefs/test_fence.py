from __future__ import annotations

import pytest

from perago.lakefs.fence import ACTION_TEXT, FenceState, fence_state


def test_only_the_very_text_is_the_fence() -> None:
    assert fence_state(ACTION_TEXT.encode()) is FenceState.INSTALLED


@pytest.mark.parametrize(
    "text",
    [
        ACTION_TEXT + "\n",
        ACTION_TEXT[:-1],
        ACTION_TEXT.replace("~=", "=="),
        ACTION_TEXT.replace("pre-merge", "post-merge"),
    ],
)
def test_an_edited_or_older_fence_is_outdated(text: str) -> None:
    assert fence_state(text.encode()) is FenceState.OUTDATED


@pytest.mark.parametrize("text", ["", "name: other\n", "name: perago_fence_of_mine\n"])
def test_anything_else_at_its_path_is_foreign(text: str) -> None:
    assert fence_state(text.encode()) is FenceState.FOREIGN
