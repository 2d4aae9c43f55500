"""What an external server lacks is named, setting by setting."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.servers.s3a import COMMITTER_SETTINGS, s3a_settings
from perago.wiring.spark_probe import explain_read_failure, missing_settings

COMPLETE = s3a_settings(LakeFSConnection("http://lakefs:8000", "key", SecretStr("secret")))


def missing(settings: dict[str, str]) -> list[str]:
    return list(missing_settings(settings.get))


def test_what_perago_sets_itself_is_complete() -> None:
    assert missing(COMPLETE) == []


@pytest.mark.parametrize(
    "key",
    ["spark.hadoop.fs.s3a.endpoint", "spark.hadoop.fs.s3a.path.style.access", *COMMITTER_SETTINGS],
)
def test_each_setting_that_is_absent_is_named(key: str) -> None:
    [problem] = missing({name: value for name, value in COMPLETE.items() if name != key})
    assert problem.startswith(key)


def test_credentials_may_come_from_a_provider() -> None:
    provider = "spark.hadoop.fs.s3a.aws.credentials.provider"
    keys = ("spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.secret.key")
    without_keys = {name: value for name, value in COMPLETE.items() if name not in keys}
    assert missing(without_keys) == []
    without_keys.pop(provider)
    [problem] = missing(without_keys)
    assert all(key in problem for key in (*keys, provider))


def test_the_value_of_a_secret_is_never_shown() -> None:
    broken = {
        name: value for name, value in COMPLETE.items() if name != "spark.hadoop.fs.s3a.access.key"
    }
    assert "secret" not in "".join(missing(broken)).replace("secret.key", "")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("[PATH_NOT_FOUND] Path does not exist: s3a://probe/main/nothing", None),
        ("java.lang.ClassNotFoundException: Class org…S3AFileSystem not found", "the jars of S3A"),
        ("getFileStatus: AccessDeniedException: 403", "LakeFS refused the credentials"),
        ("Forbidden (Service: S3, Status Code: 403, Request ID: 1)", "LakeFS refused the credent"),
        ("[PATH_NOT_FOUND] Path does not exist: s3a://perago-probe-1a403bcd/main/nothing", None),
        ("UnknownStoreException (Service: S3, Status Code: 404, Request ID: 7e403fd1-07)", None),
        ("(UnknownStoreException) no bucket\n\nJVM stacktrace:\nS3AFileSystem not found", None),
        ("UnknownHostException: lakefs.invalid", "it cannot resolve the host"),
        ("something else entirely", "something else entirely"),
    ],
)
def test_what_s3a_says_is_put_into_words(reason: str, expected: str | None) -> None:
    found = explain_read_failure(reason)
    assert found is None if expected is None else found is not None and expected in found
