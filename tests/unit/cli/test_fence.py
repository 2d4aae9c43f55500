from __future__ import annotations

import pytest

from perago.cli.fence import verdict
from perago.lakefs.fence import FenceState
from perago.operations.fence import FenceStatus, Verification


def found(
    refuses: bool | None, right: bool | None, other: bool | None, *, hooks_ran: bool = True
) -> Verification:
    status = FenceStatus("repo", "main", "0" * 64, FenceState.INSTALLED)
    return Verification(status, refuses, right, other, hooks_ran)


def test_a_fence_holds_when_it_refuses_the_wrong_head_and_nothing_else() -> None:
    assert found(True, True, True).holds
    assert verdict(found(True, True, True)) == "the fence holds"


def test_a_server_that_ran_no_hook_has_actions_disabled() -> None:
    disabled = found(False, None, None, hooks_ran=False)
    assert not disabled.holds
    assert "Actions are disabled there; set actions.enabled: true" in verdict(disabled)


def test_a_hook_that_ran_and_let_the_wrong_head_pass_is_told_apart() -> None:
    assert "the server ran hooks, and none refused" in verdict(found(False, None, None))


@pytest.mark.parametrize("answers", [(True, False, True), (True, True, False)])
def test_a_fence_that_refuses_too_much_does_not_hold(answers: tuple[bool, bool, bool]) -> None:
    assert not found(*answers).holds
    assert "refuses too much" in verdict(found(*answers))


def test_without_a_fence_nothing_is_proved() -> None:
    nothing = Verification(FenceStatus("repo", "main", "0" * 64, FenceState.MISSING))
    assert not nothing.holds
    assert "there is no fence" in verdict(nothing)
