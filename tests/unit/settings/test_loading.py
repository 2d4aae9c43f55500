"""Settings: which source wins, what is said about a wrong value, and what is never said."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from perago.errors import ConfigurationError
from perago.settings import Address, Settings, load_settings, read_settings
from perago.settings.model import SECRET_FIELDS

SECRET = "wJalrXUtnFEMI-example-secret"


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def lakectl(text: str, mode: int = 0o600) -> Path:
    return write(Path.home() / ".lakectl.yaml", text, mode)


def origins() -> dict[str, str]:
    return {item.field: item.origin for item in read_settings().values()}


def problems() -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_settings()
    assert caught.value.exit_code == 2
    return str(caught.value).splitlines()


def test_without_any_source_everything_is_the_default() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert settings.shutdown_grace_seconds == 30
    assert settings.metrics_address == Address("127.0.0.1", 9464)
    assert set(origins().values()) == {"default"}


def test_making_settings_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERAGO_TRANSFER_THREADS", "7")
    assert Settings().transfer_threads == 32
    assert load_settings().transfer_threads == 7


def test_the_environment_wins_over_perago_toml_over_pyproject_over_lakectl(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakectl(
        "server: {endpoint_url: http://lakectl}\n"
        f"credentials: {{access_key_id: LAKECTL, secret_access_key: {SECRET}}}\n"
    )
    write(
        folder / "pyproject.toml",
        '[tool.perago]\nlog-level = "error"\nlog-format = "json"\ntransfer-threads = 3\n',
    )
    write(folder / "perago.toml", 'log-level = "debug"\ntransfer_threads = 4\n')
    monkeypatch.setenv("PERAGO_TRANSFER_THREADS", "5")
    settings, found = load_settings(), origins()
    assert (settings.transfer_threads, found["transfer_threads"]) == (5, "environment")
    assert (settings.log_level, found["log_level"]) == ("debug", "perago.toml")
    assert (settings.log_format, found["log_format"]) == ("json", "pyproject.toml [tool.perago]")
    assert settings.lakefs_secret_access_key is not None
    assert settings.lakefs_secret_access_key.get_secret_value() == SECRET
    assert found["lakefs_secret_access_key"] == "~/.lakectl.yaml"
    assert found["replacement"] == "default"


def test_an_empty_variable_counts_as_not_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "perago.toml", 'log-level = "debug"\n')
    monkeypatch.setenv("PERAGO_LOG_LEVEL", "")
    assert load_settings().log_level == "debug"


@pytest.mark.parametrize("value", ["9464", "null", '["127.0.0.1", 9464]'])
def test_a_variable_is_text_and_not_parsed_as_json(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_METRICS_ADDRESS", value)
    assert problems() == [
        "PERAGO_METRICS_ADDRESS (environment): write host:port, for example 127.0.0.1:9464, or off"
    ]


def test_a_variable_counts_under_its_exact_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("perago_log_level", "debug")
    assert load_settings().log_level == "info"


def test_lakectl_config_file_names_another_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakectl("server: {endpoint_url: http://home}\n")
    other = write(folder / "other.yaml", "server: {endpoint_url: http://other}\n")
    monkeypatch.setenv("LAKECTL_CONFIG_FILE", str(other))
    assert load_settings().lakefs_endpoint == "http://other"
    assert origins()["lakefs_endpoint"] == str(other)
    other.unlink()
    assert problems() == [f"LAKECTL_CONFIG_FILE names {other}, which is not there"]


def test_lakectl_s_other_keys_and_empty_values_are_its_own_business() -> None:
    lakectl(
        "metastore: {type: hive}\nserver: {endpoint_url: '', retries: {enabled: true}}\n"
        "credentials: null\n"
    )
    assert load_settings() == Settings()


def test_a_user_whose_home_is_no_folder_has_no_lakectl_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a service's: no command worked."""
    monkeypatch.setenv("HOME", "/dev/null")
    assert load_settings().lakefs_endpoint is None


def test_a_broken_lakectl_file_matters_only_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lakectl(f"credentials:\n  secret_access_key: *{SECRET}\n")
    assert problems() == ["~/.lakectl.yaml: this is not valid YAML at line 2, column 22"]
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", "http://x")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "secret")
    assert load_settings().lakefs_endpoint == "http://x"


@pytest.mark.parametrize("text", ["- a\n- b\n", "credentials: text\nserver: [1]\n", ""])
def test_a_lakectl_file_of_another_shape_gives_nothing(text: str) -> None:
    lakectl(text)
    assert load_settings() == Settings()


def test_an_unknown_key_is_an_error_that_names_the_nearest_known_one(folder: Path) -> None:
    write(folder / "perago.toml", "transfer-thread = 3\n[perago]\nx = 1\n")
    write(folder / "pyproject.toml", "[tool.perago]\nperago_log_levle = 'info'\n")
    first, second, third = problems()
    assert first == (
        "transfer-thread (perago.toml): there is no such setting; the nearest is transfer-threads"
    )
    assert second.startswith("perago (perago.toml): there is no such setting; the nearest is ")
    assert third == (
        "perago_log_levle (pyproject.toml [tool.perago]): there is no such setting; "
        "the nearest is log-level"
    )


def test_a_key_in_both_spellings_is_an_error(folder: Path) -> None:
    write(folder / "perago.toml", "log-level = 'info'\nlog_level = 'debug'\n")
    assert problems() == ["log_level (perago.toml): this is also given as log-level"]


def test_every_wrong_value_is_named_at_once_with_its_origin_and_without_the_value(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakectl("server: {endpoint_url: lakefs.example.com}\n")
    write(
        folder / "perago.toml",
        f'metrics-address = 9464\nconductor-auth-secret = "{SECRET}\\n"\nno-such-key = 1\n',
    )
    monkeypatch.setenv("PERAGO_TRANSFER_THREADS", "many-things")
    monkeypatch.setenv("CONDUCTOR_SERVER_URL", f"http://user:{SECRET}@conductor")
    found = problems()
    assert {line.partition(": ")[0] for line in found} == {
        "no-such-key (perago.toml)",
        "server.endpoint_url (~/.lakectl.yaml)",
        "CONDUCTOR_SERVER_URL (environment)",
        "conductor-auth-secret (perago.toml)",
        "PERAGO_TRANSFER_THREADS (environment)",
        "metrics-address (perago.toml)",
        "conductor-auth-secret (perago.toml) is set, but CONDUCTOR_AUTH_KEY is not",
        "Conductor's address and keys come from different sources",
    }
    text = "\n".join(found)
    assert SECRET not in text
    assert "many-things" not in text


@pytest.mark.parametrize("value", [f"http://user:{SECRET}@ex℀mple", f"http://[{SECRET}]"])
def test_an_address_that_cannot_be_parsed_is_not_repeated(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_SERVER_URL", value)
    (only,) = problems()
    assert only.startswith("CONDUCTOR_SERVER_URL (environment): write ")
    assert SECRET not in only


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LAKECTL_SERVER_ENDPOINT_URL", "ftp://x"),
        ("LAKECTL_SERVER_ENDPOINT_URL", "http://"),
        ("LAKECTL_SERVER_ENDPOINT_URL", "http://x:99999"),
        ("LAKECTL_SERVER_ENDPOINT_URL", "http://x?y=1"),
        ("LAKECTL_SERVER_ENDPOINT_URL", "http://x\n"),
        ("LAKECTL_SERVER_ENDPOINT_URL", "http://münchen.example"),
        ("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "key\n"),
        ("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", " secret"),
        ("PERAGO_TRANSFER", "presigned"),
        ("PERAGO_TRANSFER_THREADS", "257"),
        ("PERAGO_TRANSFER_THREADS", "1.5"),
        ("PERAGO_SHUTDOWN_GRACE_SECONDS", "-1"),
        ("PERAGO_SHUTDOWN_GRACE_SECONDS", "nan"),
        ("PERAGO_SHUTDOWN_GRACE_SECONDS", "inf"),
        ("PERAGO_METRICS_ADDRESS", "9464"),
        ("PERAGO_METRICS_ADDRESS", ":9464"),
        ("PERAGO_METRICS_ADDRESS", "host:"),
        ("PERAGO_METRICS_ADDRESS", "host:65536"),
        ("PERAGO_METRICS_ADDRESS", "host:٣"),
        ("PERAGO_LOG_FORMAT", "xml"),
        ("PERAGO_LOG_LEVEL", "loud"),
        ("PERAGO_PUBLISH_FENCE", "none"),
        ("PERAGO_REPLACEMENT", "some"),
        ("PERAGO_ALLOWED_WORKSPACES", "songs"),
        ("PERAGO_ALLOWED_WORKSPACES", "songs/main,"),
        ("PERAGO_ALLOWED_WORKSPACES", "songs/a/b"),
        ("PERAGO_SPARK_DATA", "/etc/*"),
        ("PERAGO_SPARK_DATA", "tasks/../../*"),
        ("PERAGO_MIN_FREE_BYTES", "-1"),
    ],
)
def test_a_wrong_value_is_one_problem_at_its_variable(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    (only,) = problems()
    assert only.startswith(f"{variable} (environment): ")


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("0.0.0.0:80", Address("0.0.0.0", 80)),  # noqa: S104  parsed, not bound
        ("[::1]:9464", Address("::1", 9464)),
        ("localhost:0", Address("localhost", 0)),
        ("OFF", None),
    ],
)
def test_a_metrics_address_is_host_and_port_or_off(
    value: str, address: Address | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_METRICS_ADDRESS", value)
    settings = load_settings()
    assert settings.metrics_address == address
    assert "metrics_address" in settings.model_fields_set
    shown = {item.field: item.shown for item in read_settings().values()}["metrics_address"]
    assert shown == value.lower()


def test_a_default_metrics_address_does_not_count_as_set() -> None:
    assert "metrics_address" not in load_settings().model_fields_set


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("perago.toml", b"log-level = ", "perago.toml: this is not valid TOML at end of document"),
        ("pyproject.toml", b"[tool\n", "pyproject.toml: this is not valid TOML at line 1, col"),
        ("perago.toml", b"\xff\xfe", "perago.toml: this is not UTF-8 text"),
        ("pyproject.toml", b"[tool]\nperago = 3\n", "pyproject.toml [tool.perago]: this must be"),
    ],
)
def test_a_file_that_cannot_be_understood_is_named_with_the_place(
    folder: Path, name: str, content: bytes, problem: str
) -> None:
    (folder / name).write_bytes(content)
    (only,) = problems()
    assert only.startswith(problem)


def test_a_folder_in_the_place_of_a_file_is_named(folder: Path) -> None:
    (folder / "perago.toml").mkdir()
    assert problems() == ["perago.toml: this cannot be read: Is a directory"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_secret_in_a_file_that_others_can_read_gives_a_warning(
    folder: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    text = f'lakefs-secret-access-key = "{SECRET}"\n'
    file = write(folder / "perago.toml", text, mode)
    with caplog.at_level(logging.WARNING):
        load_settings()
    (record,) = caplog.records
    assert record.getMessage() == (
        "lakefs-secret-access-key (perago.toml): others can read this secret; "
        "run: chmod 600 perago.toml"
    )
    file.chmod(0o600)
    assert read_settings().warnings == ()


def test_a_readable_file_without_a_secret_gives_no_warning(folder: Path) -> None:
    write(folder / "perago.toml", 'lakefs-access-key-id = "key"\n', 0o644)
    assert read_settings().warnings == ()


def test_a_secret_that_is_overridden_gives_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    lakectl(f"credentials: {{secret_access_key: {SECRET}}}\n", 0o644)
    assert len(read_settings().warnings) == 1
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "another")
    assert read_settings().warnings == ()


def test_no_representation_shows_a_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("SPARK_REMOTE", f"sc://localhost:15002/;token={SECRET}")
    write(
        folder / "perago.toml",
        f'conductor-auth-key = "key"\nconductor-auth-secret = "{SECRET}"\n',
    )
    loaded = read_settings()
    assert loaded.settings.conductor_auth_secret is not None
    assert SECRET not in f"{loaded!r} {loaded.settings!r} {loaded.values()!r}"
    masked = {item.field for item in loaded.values() if item.shown == "********"}
    assert masked == SECRET_FIELDS


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().transfer_threads = 3  # type: ignore[misc]


def test_a_workspace_root_is_made_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERAGO_WORKSPACE_ROOT", "work")
    assert load_settings().workspace_root == folder / "work"
    monkeypatch.setenv("PERAGO_WORKSPACE_ROOT", "~/work")
    assert load_settings().workspace_root == Path.home() / "work"


def test_a_home_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERAGO_WORKSPACE_ROOT", "~no-such-user/x")
    assert problems() == [
        "PERAGO_WORKSPACE_ROOT (environment): there is no such home folder; write a full path"
    ]
    monkeypatch.setenv("LAKECTL_CONFIG_FILE", "~no-such-user/l.yaml")
    assert "LAKECTL_CONFIG_FILE names ~no-such-user/l.yaml, which is not there" in problems()


@pytest.mark.parametrize(
    "value", ["9" * 5000, "[" * 100_000 + "]" * 100_000], ids=["a number", "nesting"]
)
def test_a_value_that_the_parser_of_toml_cannot_convert(value: str) -> None:
    write(Path("perago.toml"), f"transfer-threads = {value}\n")
    assert problems() == ["perago.toml: this is not valid TOML"]


@pytest.mark.parametrize(
    "value", ["2026-13-45", "[" * 10_000 + "]" * 10_000], ids=["a date", "nesting"]
)
def test_a_value_that_the_parser_of_yaml_cannot_convert(value: str) -> None:
    lakectl(f"expires: {value}\n")
    assert problems() == ["~/.lakectl.yaml: this is not valid YAML"]


def test_a_variable_that_is_almost_a_setting_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERAGO_PUBLISH_FENCES", "hard")
    monkeypatch.setenv("PERAGO_OF_ANOTHER_PROGRAM", "1")
    monkeypatch.setenv("PERAGO_CACHE", "/tmp/cache")
    monkeypatch.setenv("PERAGO_SPARK_CONF_spark_x", "1")
    assert read_settings().warnings == (
        "PERAGO_PUBLISH_FENCES (environment): there is no such setting; "
        "did you mean PERAGO_PUBLISH_FENCE?",
    )
