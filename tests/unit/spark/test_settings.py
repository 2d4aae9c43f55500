"""From settings, variables, files and options to one Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.errors import ConfigurationError
from perago.servers.s3a import s3a_settings
from perago.servers.spark import ConnectSettings
from perago.settings import Settings
from perago.spark.session import SHARES_MODULES
from perago.spark.settings import ExternalSpark, ManagedSpark, SparkOptions, resolve_spark

LAKEFS = LakeFSConnection("https://s3.example.com", "AKIAEXAMPLE", SecretStr("the-secret"))
NONE = SparkOptions()
KEY = "spark.sql.shuffle.partitions"
VARIABLE = "PERAGO_SPARK_CONF_spark__sql__shuffle__partitions"


def own(
    settings: Settings | None = None,
    options: SparkOptions = NONE,
    environment: dict[str, str] | None = None,
) -> ManagedSpark:
    found = resolve_spark(settings or Settings(), LAKEFS, options, environment or {})
    assert isinstance(found, ManagedSpark)
    return found


def test_without_any_setting_a_worker_runs_spark_on_this_machine() -> None:
    spark = own()
    assert spark.connect.master == "local[*]"
    assert spark.connect.conf == {SHARES_MODULES: "true"}
    assert spark.described() == {
        "spark.master": "local[*]",
        "s3_gateway": "https://s3.example.com",
        **spark.connect.memory(),
    }
    assert spark.idle_seconds == 1800


def test_a_remote_wins_over_a_master_and_hides_its_token() -> None:
    remote = SecretStr("sc://spark.example.com:443/;use_ssl=true;token=hidden;user_id=me")
    settings = Settings(spark_remote=remote, spark_master="spark://other:7077")
    spark = resolve_spark(settings, LAKEFS, NONE, {VARIABLE: "3"})
    assert isinstance(spark, ExternalSpark)
    shown = "sc://spark.example.com:443/;use_ssl=true;token=********;user_id=me"
    assert spark.described() == {"remote": shown}
    assert "hidden" not in repr(spark)


def test_options_cannot_change_an_external_server() -> None:
    settings = Settings(spark_remote=SecretStr("sc://host"))
    options = SparkOptions(master="local", packages="a:b:1")
    with pytest.raises(ConfigurationError, match=r"^--master, --packages cannot change"):
        resolve_spark(settings, LAKEFS, options, {})


@pytest.mark.parametrize("master", ["spark://a:7077,b:7077", "yarn", "k8s://https://host:6443"])
def test_a_master_goes_through_unchanged_and_shares_no_modules(master: str) -> None:
    by_setting = own(Settings(spark_master=master))
    by_option = own(Settings(spark_master="local[1]"), SparkOptions(master=master))
    assert by_setting == by_option
    assert by_option.connect.master == master
    assert SHARES_MODULES not in by_option.connect.conf
    assert not by_option.connect.stays_on_loopback


@pytest.mark.parametrize(
    ("master", "local", "loopback"),
    [
        ("local", True, True),
        ("local[2,3]", True, True),
        ("local-cluster[2,1,1024]", False, True),
        ("spark://127.0.0.1:7077", False, True),
        ("spark://localhost:7077", False, True),
        ("spark://localhost.example.com:7077", False, False),
        ("localish", False, False),
    ],
)
def test_only_what_runs_on_this_machine_stays_on_loopback(
    master: str, local: bool, loopback: bool
) -> None:
    settings = ConnectSettings("x", LAKEFS, master)
    assert (settings.is_local, settings.stays_on_loopback) == (local, loopback)


def test_the_command_line_wins_over_variables_and_those_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "spark.properties"
    file.write_text(f"{KEY} 1\nspark.a=file\nspark.b=file\nspark.c: file\n")
    environment = {VARIABLE: "2", "PERAGO_SPARK_CONF_spark__a": "env", "OTHER": "x"}
    options = SparkOptions(conf=(f"{KEY}=3", "spark.b=with=equals"), packages="g:a:1,g:b:2")
    spark = own(Settings(spark_properties=file), options, environment)
    assert spark.conf == {
        KEY: "3",
        "spark.a": "env",
        "spark.b": "with=equals",
        "spark.c": "file",
        "spark.jars.packages": "g:a:1,g:b:2",
    }


@pytest.mark.parametrize("variable", ["PERAGO_SPARK_CONF_sql", "PERAGO_SPARK_CONF_SPARK__SQL"])
def test_a_variable_that_names_no_spark_setting_is_an_error(variable: str) -> None:
    with pytest.raises(ConfigurationError, match=f"not the name of a Spark setting: {variable}"):
        own(environment={variable: "x"})


@pytest.mark.parametrize("text", ["spark.sql.x", "sql.x=secret-value", "=secret-value"])
def test_an_option_that_is_no_setting_is_an_error_that_hides_the_value(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a Spark setting with a value") as caught:
        own(options=SparkOptions(conf=(text,)))
    assert "secret-value" not in str(caught.value)


@pytest.mark.parametrize(
    "key",
    ["spark.master", "spark.connect.authenticate.token", "spark.connect.grpc.binding.address"],
)
def test_what_keeps_the_server_closed_cannot_be_set(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{key} cannot be set"):
        own(options=SparkOptions(conf=(f"{key}=0.0.0.0",)))


def test_secrets_are_masked_in_what_is_logged() -> None:
    secrets = (
        "spark.hadoop.fs.s3a.secret.key",
        "spark.x.password",
        "spark.hadoop.x.access.key",
        "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.data.shop.blob.core.windows.net",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
    )
    hidden = "value-of-the-masking-test"
    conf = [f"{key}={hidden}" for key in secrets]
    spark = own(options=SparkOptions(conf=(*conf, f"spark.driver.extraJavaOptions=-Dx={hidden}")))
    assert hidden not in repr(spark)
    described = spark.described()
    assert hidden not in repr(described)
    assert {described[key] for key in secrets} == {"********"}


def test_s3a_is_told_to_use_tls_exactly_for_https() -> None:
    ssl = "spark.hadoop.fs.s3a.connection.ssl.enabled"
    assert s3a_settings(LAKEFS)[ssl] == "true"
    assert s3a_settings(LakeFSConnection("http://h:1", "a", SecretStr("b")))[ssl] == "false"
    assert "the-secret" not in repr(LAKEFS)


def test_the_ui_is_on_loopback_unless_the_settings_name_an_address() -> None:
    assert own().connect.ui is None
    assert own(options=SparkOptions(ui=True)).connect.ui == ("127.0.0.1", 4040)
    named = Settings(spark_ui="10.0.0.1:4141")
    assert own(named).connect.ui == own(named, SparkOptions(ui=True)).connect.ui
    assert own(named).connect.ui == ("10.0.0.1", 4141)
    with pytest.raises(
        ConfigurationError, match=r"spark\.ui\.enabled cannot be set; use --spark-ui"
    ):
        own(options=SparkOptions(conf=("spark.ui.enabled=true",)))


def test_an_event_log_is_a_folder_or_an_address(tmp_path: Path) -> None:
    spark = own(Settings(spark_event_log=str(tmp_path)))
    assert spark.described()["spark.eventLog.dir"] == tmp_path.as_uri()
    spark = own(Settings(spark_event_log="hdfs://nn/events"))
    assert spark.connect.event_log == "hdfs://nn/events"
    with pytest.raises(ValueError, match="write a folder"):
        Settings(spark_event_log="a\nb")
