"""Whose jobs a session's are, as Spark's UI shows them; with pyspark's own client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from perago.protocol.identity import Attempt, Claim, Execution
from perago.spark.labels import DESCRIPTION_SETTING, GROUP_SETTING, Label, Labelled, ungroup
from perago.spark.session import _connect, forget
from support.waiting import joined

EXECUTION = Execution(Claim(Attempt("wf-1", "task-7", 2, "clean"), "token"), "exec-9")
LABEL = Label("clean,events", EXECUTION)


class Settings(dict[str, str]):
    """The settings of a session, as its client sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def set(self, key: str, value: str) -> None:
        self.requests += 1
        self[key] = value

    def unset(self, key: str) -> None:
        del self[key]


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def session(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    opened = _connect("sc://localhost:1", "e")
    monkeypatch.setattr(type(opened), "conf", property(lambda _: settings))
    yield opened
    forget(opened)


def sent(session: Any) -> list[str]:
    """The tags of the next request."""
    return list(session.client._execute_plan_request_with_metadata().tags)


def test_requests_carry_task_workflow_attempt_and_phase(session: Any, settings: Settings) -> None:
    labelled = Labelled(session, LABEL, "pre_guardrails")
    assert settings == {GROUP_SETTING: "clean_events task-7"}
    session.addTag("own")
    assert sorted(sent(session)) == [
        "own",
        "perago-attempt-task-7",
        "perago-execution-exec-9",
        "perago-phase-pre_guardrails",
        "perago-task-clean_events",
        "perago-workflow-wf-1",
    ]
    labelled.phase = "body"
    assert "perago-phase-body" in sent(session)
    assert settings[DESCRIPTION_SETTING] == (
        "clean_events: body (step clean of workflow wf-1, attempt task-7, retry 2)"
    )


def test_a_phase_is_told_once_and_only_if_it_has_a_request(
    session: Any, settings: Settings
) -> None:
    labelled = Labelled(session, LABEL, "session")
    labelled.phase = "body"
    before = settings.requests
    sent(session)
    sent(session)
    assert settings.requests == before + 1


def test_threads_of_a_body_have_the_tags_too(session: Any) -> None:
    Labelled(session, LABEL, "body")
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(sent(session)))
    thread.start()
    joined(thread)
    assert "perago-task-clean_events" in found[0]


def test_a_description_that_cannot_be_set_fails_no_request(
    session: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    Labelled(session, LABEL, "body")

    def refuse(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(settings, "set", refuse)
    assert "perago-phase-body" in sent(session)


def test_streaming_queries_keep_the_group_by_which_spark_stops_them(
    session: Any, settings: Settings
) -> None:
    ungroup(session)  # a session without a label has no group
    Labelled(session, LABEL, "body")
    ungroup(session)
    assert GROUP_SETTING not in settings


def test_odd_names_fit_into_tags() -> None:
    label = Label("a\nb,c" + "x" * 300, EXECUTION)
    for tag in label.tags("body"):
        assert "," not in tag
        assert tag.isprintable()
        assert len(tag) < 150
