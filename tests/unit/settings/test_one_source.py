"""Keys are never sent to an address that came from another source."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago.errors import ConfigurationError
from perago.masking import SECRET_VARIABLES
from perago.settings import load_settings
from perago.settings.model import SECRET_FIELDS, variable_of

KEYS = {
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "AKIA",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "the-secret",
}
ALL = {"LAKECTL_SERVER_ENDPOINT_URL": "http://lakefs", **KEYS}
LAKECTL = (
    "server: {endpoint_url: http://lakectl}\n"
    "credentials: {access_key_id: AKIA, secret_access_key: the-secret}\n"
)


def given(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def refused() -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert "the-secret" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["perago.toml", "pyproject.toml"])
def test_an_endpoint_of_a_checkout_never_gets_keys_of_the_environment(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = "[tool.perago]\n" if name == "pyproject.toml" else ""
    (folder / name).write_text(f'{header}lakefs-endpoint = "http://elsewhere"\n')
    given(monkeypatch, KEYS)
    said = refused()
    assert f"lakefs-endpoint ({name}" in said
    assert "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY (environment)" in said
    assert "give all of them in one source" in said


def test_an_endpoint_of_a_checkout_never_gets_keys_of_lakectl(folder: Path) -> None:
    (Path.home() / ".lakectl.yaml").write_text(LAKECTL)
    (folder / "perago.toml").write_text('lakefs-endpoint = "http://elsewhere"\n')
    assert "credentials.secret_access_key (~/.lakectl.yaml)" in refused()


def test_an_endpoint_of_the_environment_does_not_get_keys_of_lakectl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (Path.home() / ".lakectl.yaml").write_text(LAKECTL)
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", "http://other")
    assert "LAKECTL_SERVER_ENDPOINT_URL (environment)" in refused()


def test_keys_of_a_checkout_are_not_used_for_the_environment_s_endpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "perago.toml").write_text(
        'lakefs-access-key-id = "A"\nlakefs-secret-access-key = "the-secret"\n'
    )
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", "http://lakefs")
    assert "lakefs-access-key-id (perago.toml)" in refused()


def test_a_conductor_of_a_checkout_never_gets_keys_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pyproject.toml").write_text('[tool.perago]\nconductor-server-url = "http://c"\n')
    given(monkeypatch, {"CONDUCTOR_AUTH_KEY": "k", "CONDUCTOR_AUTH_SECRET": "the-secret"})
    assert "Conductor's address and keys come from different sources" in refused()


@pytest.mark.parametrize(
    "line",
    [
        'lakefs-s3-endpoint = "http://elsewhere"',
        'ca-bundle = "authority.pem"',
        'spark-remote = "sc://elsewhere:15002"',
        'spark-master = "spark://elsewhere:7077"',
        'spark-properties = "spark.properties"',
    ],
)
def test_nothing_of_a_checkout_decides_where_the_environment_s_keys_are_sent(
    folder: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "perago.toml").write_text(line + "\n")
    given(monkeypatch, ALL)
    said = refused()
    assert f"{line.partition(' ')[0]} (perago.toml) would receive LakeFS's keys" in said


def test_one_source_with_everything_is_taken_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path.home() / ".lakectl.yaml").write_text(LAKECTL)
    assert load_settings().lakefs_endpoint == "http://lakectl"
    given(monkeypatch, ALL)
    assert load_settings().lakefs_endpoint == "http://lakefs"
    (folder / "perago.toml").write_text('conductor-server-url = "http://conductor"\n')
    assert load_settings().conductor_server_url == "http://conductor"


def test_the_user_s_own_sources_may_complete_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    (Path.home() / ".lakectl.yaml").write_text(LAKECTL)
    monkeypatch.setenv("PERAGO_LAKEFS_S3_ENDPOINT", "http://gateway")
    assert load_settings().lakefs_s3_endpoint == "http://gateway"


def test_every_secret_setting_has_its_variable_hidden() -> None:
    assert {variable_of(name) for name in SECRET_FIELDS} == set(SECRET_VARIABLES)
