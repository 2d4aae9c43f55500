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
    is_secret_variable,
    mask_secrets,
    names_secret,
    remember_named_secrets,
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


SECRET_NAMES = [
    "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net",
    "fs.azure.account.key",
    "spark.hadoop.fs.azure.sas.data.shop.blob.core.windows.net",
    "spark.hadoop.fs.azure.sas.fixed.token",
    "spark.azureSas",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.s3a.server-side-encryption.key",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.hadoop.parquet.encryption.key.list",
    "spark.my.accountKey",
    "spark.my.privateKey",
    "spark.my.private_key",
    "spark.my.API-KEY",
    "spark.my.passphrase",
    "spark.my.PASSWD",
    "spark.eventhubs.connectionString",
    "spark.datasource.password",
    "spark.authenticate.secret",
    "spark.kubernetes.authenticate.oauthToken",
]
HARMLESS_NAMES = [
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
    "spark.my.primaryKey",
    "spark.my.primary.key",
    "spark.my.partition.key",
    "spark.my.sort_key",
    "spark.my.keys",
    "spark.ssl.keyStore",
    "spark.kafka.kansas.topic",
    "spark.my.sass",
    "spark.hadoop.fs.azure.account.auth.type.shop.dfs.core.windows.net",
    "spark.hadoop.fs.s3a.encryption.algorithm",
    "spark.executor.memoryOverhead",
    "spark.ui.port",
]


def variable(name: str) -> str:
    return masking.SPARK_CONF_PREFIX + name.replace(".", "__")


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_name_tells_that_a_setting_is_secret_in_every_spelling(name: str) -> None:
    for spelled in (name, name.upper() if "Sas" not in name else name, variable(name)):
        assert names_secret(spelled)
    assert is_secret_variable(variable(name))


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_a_harmless_name_hides_nothing(name: str) -> None:
    for spelled in (name, name.upper(), variable(name)):
        assert not names_secret(spelled)
    assert not is_secret_variable(variable(name))


def test_a_value_that_its_name_hides_is_masked_wherever_it_turns_up() -> None:
    remember_named_secrets(
        {
            "spark.hadoop.fs.azure.account.key.shop": "azure-key-81b3",
            "spark.ui.port": "40404040",
            "spark.my.password": "short",
            "spark.my.token.enabled": "true",
            "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.SimpleProvider",
        }
    )
    assert mask_secrets("it was azure-key-81b3") == "it was ********"
    plain = "40404040 short true org.apache.hadoop.SimpleProvider"
    assert mask_secrets(plain) == plain


def test_a_hidden_variable_is_remembered_as_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_hidden", {})
    monkeypatch.setenv(variable("spark.hadoop.fs.s3a.encryption.key"), "encryption-key-5d07")
    hide_secret_variables()
    assert mask_secrets("encryption-key-5d07") == "********"
