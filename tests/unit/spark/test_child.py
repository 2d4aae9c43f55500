"""Questions to a Spark Connect server are asked in a process that can be ended."""

from __future__ import annotations

import pytest

from perago.errors import BackendUnavailableError
from perago.spark import child

GRPC = """<_InactiveRpcError of RPC that terminated with:
	status = StatusCode.UNAVAILABLE
	details = "failed to connect to all addresses"
	debug_error_string = "UNKNOWN: more"
>"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GRPC, "failed to connect to all addresses"),
        ("[SESSION_CLOSED] The session is closed.\n\nJVM stacktrace:\nmore", "[SESSION_CLOSED]"),
    ],
)
def test_the_telling_line_of_an_error_is_kept(text: str, expected: str) -> None:
    assert child.in_short(text).startswith(expected)


def test_a_question_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(BackendUnavailableError, match=r"did not answer within 0 s"):
        child.ask("perago.spark.probe", {"remote": "sc://localhost:1"}, seconds=0.01)


def test_an_error_over_there_is_an_error_here() -> None:
    with pytest.raises(BackendUnavailableError, match="could not be asked: 'remote'"):
        child.ask("perago.spark.interrupting", {}, seconds=60)
