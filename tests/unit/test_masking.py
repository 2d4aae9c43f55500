"""What leaves a process has no secret and no control character in it."""

from __future__ import annotations

import base64
import os

import pytest

from perago import masking
from perago.masking import (
    Masker,
    environment_with_secrets,
    escape_controls,
    hide_secret_variables,
    remember_secret,
    sendable,
)

SECRET = 'wJalr/"XUtn+FEMI é'


@pytest.mark.parametrize(
    "text",
    [
        f"before {SECRET} after",
        f"{SECRET!r}",
        "wJalr%2F%22XUtn%2BFEMI%20%C3%A9",
        base64.b64encode(f"AKIA:{SECRET}".encode()).decode(),
    ],
)
def test_a_secret_is_masked_in_every_form(text: str) -> None:
    masked = Masker([("AKIA", SECRET)])(text)
    assert "********" in masked
    assert "wJalr" not in masked


def test_what_is_sent_is_masked_and_escaped() -> None:
    remember_secret("token-of-a-test")
    assert sendable("\x1b[31m token-of-a-test\n\tx") == "\\x1b[31m ********\n\tx"


@pytest.mark.parametrize("char", ["\x00", "\x07", "\x1b", "\r", "\x9b", "\u202e", "\ud800"])
def test_a_character_that_steers_a_terminal_is_escaped(char: str) -> None:
    shown = escape_controls(f"a{char}b")
    assert char not in shown
    assert shown.startswith("a\\")
    shown.encode()


def test_hidden_secrets_are_in_no_variable_of_this_process_and_its_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masking, "_hidden", {})
    hidden = {
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "1",
        "CONDUCTOR_AUTH_SECRET": "2",
        "SPARK_REMOTE": "sc://x/;token=3",
        "PERAGO_SPARK_CONF_spark__my__password": "4",
        "PERAGO_SPARK_CONF_spark__hadoop__fs__s3a__access__key": "5",
    }
    for name, value in {**hidden, "PERAGO_SPARK_CONF_spark__ui__port": "1"}.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    hide_secret_variables()
    assert environment_with_secrets() == before
    assert not hidden.keys() & os.environ.keys()
    assert "PERAGO_SPARK_CONF_spark__ui__port" in os.environ
