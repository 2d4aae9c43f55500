"""What a command prints cannot steer a terminal."""

from __future__ import annotations

import json

import pytest

from perago.cli import output
from perago.errors import NotFoundError

HOSTILE = "a\x1b[2J\x9b31m\u202eb\rc"


def test_no_control_character_of_a_name_or_a_server_s_text_is_printed_raw(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.say(HOSTILE)
    output.note(HOSTILE)
    output.warn(HOSTILE)
    output.explain(NotFoundError(HOSTILE, hint=HOSTILE))
    output.report_bug(ValueError(HOSTILE))
    output.emit_json({HOSTILE: [HOSTILE, "\ud800"]})
    printed = capsys.readouterr()
    text = (printed.out + printed.err).replace("\n", "")
    assert text.isprintable()
    assert "\\x1b[2J" in text


def test_json_has_the_same_value_when_it_is_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_json({"name": HOSTILE, "é": "ü"})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"schema": output.SCHEMA, "name": HOSTILE, "é": "ü"}
    assert "ü" in printed


def test_a_message_of_several_lines_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output.note("one\n\ttwo")
    assert capsys.readouterr().err == "one\n\ttwo\n"
