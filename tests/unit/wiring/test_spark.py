"""Which Spark a worker uses, by its tasks and settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from perago import SparkWorkspace, task
from perago.errors import ConfigurationError, SetupError
from perago.servers.toolchain import java
from perago.settings import Settings
from perago.spark.settings import ExternalSpark, ManagedSpark, SparkOptions
from perago.tasks.definition import TaskDefinition, definition_of
from perago.wiring.spark import ChosenSpark, choose_spark


class Model(BaseModel):
    """Nothing."""


@task(name="plain", owner_email="tests@example.com")
def plain(params: Model) -> Model:
    """No workspace."""
    return params


@task(name="files", owner_email="tests@example.com")
def files(workspace: Path, params: Model) -> Model:
    """A folder."""
    return params


@task(name="job", owner_email="tests@example.com")
def job(workspace: SparkWorkspace, params: Model) -> Model:
    """A Spark workspace."""
    return params


def definitions(*functions: object) -> list[TaskDefinition]:
    found = [definition_of(function) for function in functions]
    return [definition for definition in found if definition is not None]


def settings(**changes: object) -> Settings:
    lakefs = {
        "lakefs_endpoint": "http://127.0.0.1:1",
        "lakefs_access_key_id": "key",
        "lakefs_secret_access_key": SecretStr("secret"),
    }
    return Settings(**(lakefs | changes))


EXTERNAL = SecretStr("sc://spark.example.com:15002")
CLUSTER = "spark://master:7077"
NONE_GIVEN = SparkOptions()


@pytest.fixture(autouse=True)
def _with_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find", lambda _: java.Java(Path("java"), 17, full=True))


def choose(*functions: object, options: SparkOptions = NONE_GIVEN, **given: object) -> object:
    """In short: None, or the Spark's class and what it does."""
    chosen = choose_spark(settings(**given), definitions(*functions), options)
    if chosen is None:
        return None
    return type(chosen.spark), chosen.runs_tasks, chosen.moves_workspaces


def test_tasks_without_a_workspace_have_no_spark() -> None:
    assert choose(plain) is None


def test_file_tasks_have_one_for_what_is_large_where_it_sees_their_folders() -> None:
    assert choose(files) == (ManagedSpark, False, True)
    assert choose(files, spark_master=CLUSTER) is None
    assert choose(files, spark_master=CLUSTER, workspace_root_shared=True) == (
        ManagedSpark,
        False,
        True,
    )
    assert choose(files, spark_remote=EXTERNAL) is None
    assert choose(files, spark_remote=EXTERNAL, workspace_root_shared=True) == (
        ExternalSpark,
        False,
        True,
    )


def test_without_a_threshold_nothing_is_large() -> None:
    assert choose(files, spark_min_objects=0, spark_min_bytes=0) is None
    assert choose(files, spark_min_objects=0) == (ManagedSpark, False, True)


def test_spark_tasks_have_one_in_any_case() -> None:
    assert choose(job, plain) == (ManagedSpark, True, False)
    assert choose(job, files) == (ManagedSpark, True, True)
    assert choose(job, files, spark_remote=EXTERNAL) == (ExternalSpark, True, False)


def test_only_what_must_be_there_is_checked_at_the_start() -> None:
    def checked(*functions: object, **given: object) -> bool:
        chosen = choose_spark(settings(**given), definitions(*functions), NONE_GIVEN)
        assert isinstance(chosen, ChosenSpark)
        return chosen.is_checked_at_start

    assert not checked(files)
    assert checked(files, job)
    assert checked(files, spark_remote=EXTERNAL, workspace_root_shared=True)


def test_without_java_file_tasks_move_their_workspaces_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_java(_: object) -> java.Java:
        raise SetupError("no Java 17 or 21")

    monkeypatch.setattr(java, "find", no_java)
    assert choose(files) is None
    # For a Spark task the preflight says so.
    assert choose(job) == (ManagedSpark, True, False)


@pytest.mark.parametrize(
    ("function", "given"), [(plain, {}), (files, {"spark_min_objects": 0, "spark_min_bytes": 0})]
)
def test_options_for_a_spark_that_is_not_used_are_refused(
    function: object, given: dict[str, object]
) -> None:
    with pytest.raises(ConfigurationError, match="--master: none of these tasks uses Spark"):
        choose(function, options=SparkOptions(master="local[2]"), **given)


def test_what_is_missing_is_left_to_the_preflight() -> None:
    assert choose_spark(Settings(), definitions(job), NONE_GIVEN) is None


def test_a_cluster_of_spark_tasks_is_tried_before_the_first_poll() -> None:
    def tried(*functions: object, **given: object) -> bool:
        chosen = choose_spark(settings(**given), definitions(*functions), NONE_GIVEN)
        assert isinstance(chosen, ChosenSpark)
        return chosen.is_tried_at_start

    assert tried(job, spark_master=CLUSTER)
    assert tried(job, spark_master="yarn")
    assert not tried(job)
    assert not tried(job, spark_remote=EXTERNAL)
    assert not tried(files, spark_master=CLUSTER, workspace_root_shared=True)
