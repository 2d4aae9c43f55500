"""Requests to Conductor: what is sent, how often, and with which token."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import chain, repeat
from typing import Any

import pytest
from pydantic import SecretStr

from perago.conductor.client import ConductorAttempts
from perago.conductor.taskdefs import ConductorTaskDefs
from perago.errors import (
    BackendDeniedError,
    BackendRefusedError,
    BackendUnavailableError,
    LostReplyError,
    NotFoundError,
)
from perago.protocol.identity import Attempt, Claim
from perago.protocol.outcome import Completed
from support.adapter_calls import conductor
from support.garbage_server import PAGE, GarbageServer, answer, gateway_answer

CLAIM = Claim(Attempt("workflow", "task", 0, "step"), "token")
TASK = {
    "taskId": "task",
    "workflowInstanceId": "workflow",
    "status": "IN_PROGRESS",
    "referenceTaskName": "step",
    "taskType": "type",
    "workerId": "token",
    "responseTimeoutSeconds": 60,
}
# An error as Conductor 3.32 writes it.
MISSING = {"status": 404, "message": "No static resource", "instance": "vm", "retryable": False}
KEYS = {"auth_key": "key", "auth_secret": SecretStr("conductor-secret-93b2")}


def says(value: Any, status: str = "200 OK") -> bytes:
    return answer(status, json.dumps(value).encode())


class Replies:
    """Answers one after the other; the last one for ever."""

    def __init__(self, *replies: bytes) -> None:
        self._replies = chain(replies, repeat(replies[-1]))

    def __call__(self) -> Iterator[bytes]:
        return iter([next(self._replies)])


def test_a_poll_is_one_request_and_never_repeated() -> None:
    with (
        GarbageServer(Replies(b"")) as server,
        closing(ConductorAttempts(conductor(server.url))) as attempts,
    ):
        with pytest.raises(LostReplyError):
            attempts.poll("type", "token")
        assert len(server.requests) == 1


def test_a_poll_under_which_another_claim_stands_is_no_delivery() -> None:
    task = {**TASK, "workerId": "somebody"}
    with (
        GarbageServer(Replies(says([task]))) as server,
        closing(ConductorAttempts(conductor(server.url))) as attempts,
        pytest.raises(LostReplyError),
    ):
        attempts.poll("type", "token")


def test_a_poll_for_several_says_how_many_and_takes_no_more() -> None:
    tasks = [{**TASK, "taskId": name} for name in ("one", "two")]
    with (
        GarbageServer(Replies(says(tasks), says([]), says(tasks))) as server,
        closing(ConductorAttempts(conductor(server.url))) as attempts,
    ):
        found = attempts.poll_batch("type", "token", 2)
        assert [delivery.claim.attempt.task_id for delivery in found] == ["one", "two"]
        assert {delivery.claim.token for delivery in found} == {"token"}
        assert attempts.poll_batch("type", "token", 3) == []
        with pytest.raises(LostReplyError):
            attempts.poll_batch("type", "token", 1)
        assert ["count=2" in request for request in server.requests] == [True, False, False]


@pytest.mark.parametrize(
    "bad",
    [{"retryCount": -1}, {"workerId": "somebody"}, {"inputData": "text"}, {"referenceTaskName": 1}],
)
def test_a_task_that_cannot_be_read_takes_none_of_its_batch_with_it(bad: dict[str, Any]) -> None:
    tasks = [{**TASK, "taskId": "bad", **bad}, {**TASK, "taskId": "good"}]
    told: list[tuple[str, str]] = []
    with (
        GarbageServer(Replies(says(tasks), says([None, TASK]), says(tasks[:1]))) as server,
        closing(
            ConductorAttempts(
                conductor(server.url), on_unreadable=lambda *given: told.append(given)
            )
        ) as attempts,
    ):
        found = attempts.poll_batch("type", "token", 2)
        assert [delivery.claim.attempt.task_id for delivery in found] == ["good"]
        assert [task_type for task_type, _ in told] == ["type"]
        assert "task 'bad'" in told[0][1]
        assert len(attempts.poll_batch("type", "token", 2)) == 1
        assert len(told) == 2
        # An answer of which nothing can be read is not Conductor's.
        with pytest.raises(LostReplyError):
            attempts.poll_batch("type", "token", 2)
        assert len(told) == 2


@pytest.mark.parametrize("levels", [400, 900, 5_000])
def test_a_task_with_an_input_of_any_depth_is_delivered_and_read(levels: int) -> None:
    task = json.dumps({**TASK, "inputData": {"text": '[\\"{', "n": 0}})
    deep = task.replace('"n": 0', '"n": ' + "[" * levels + '"]"' + "]" * levels)
    good = {"GET /api/tasks/poll/": answer("200 OK", f"[{deep}]".encode())}
    with (
        GarbageServer(Replies(answer("200 OK", deep.encode())), good) as server,
        closing(ConductorAttempts(conductor(server.url))) as attempts,
    ):
        delivery = attempts.poll("type", "token")
        assert attempts.read("task").status == "IN_PROGRESS"
    assert delivery is not None
    assert delivery.payload["text"] == '[\\"{'
    value, found = delivery.payload["n"], 0
    while isinstance(value, list):
        value, found = value[0], found + 1
    assert found == levels if levels < 500 else found > 400


@pytest.mark.parametrize("missing", ["taskId", "workflowInstanceId", "status"])
def test_a_task_without_its_identity_is_an_outage(missing: str) -> None:
    task = {name: value for name, value in TASK.items() if name != missing}
    with (
        GarbageServer(Replies(says(task))) as server,
        closing(ConductorAttempts(conductor(server.url), tries=1)) as attempts,
        pytest.raises(BackendUnavailableError, match=missing),
    ):
        attempts.read("task")


def test_another_task_than_the_one_that_was_asked_for_is_an_outage() -> None:
    with (
        GarbageServer(Replies(says(TASK))) as server,
        closing(ConductorAttempts(conductor(server.url), tries=1)) as attempts,
        pytest.raises(BackendUnavailableError),
    ):
        attempts.read("other")


def test_a_task_is_gone_only_if_conductor_says_so() -> None:
    others = [
        answer("404 Not Found", PAGE),
        gateway_answer("404 Not Found"),
        says({"status": 404, "message": "no such task"}, "404 Not Found"),
        says({**MISSING, "status": 403}, "404 Not Found"),
    ]
    gone = says({**MISSING, "message": "no such task"}, "404 Not Found")
    with (
        GarbageServer(Replies(*others, gone)) as server,
        closing(ConductorAttempts(conductor(server.url), tries=1)) as attempts,
    ):
        for _ in others:
            with pytest.raises(BackendUnavailableError):
                attempts.read("task")
        with pytest.raises(NotFoundError, match="no such task"):
            attempts.read("task")


def test_the_task_log_is_sent_as_text_with_its_line_breaks() -> None:
    with (
        GarbageServer(Replies(answer("200 OK", b""))) as server,
        closing(ConductorAttempts(conductor(server.url))) as attempts,
    ):
        attempts.log("task", 'first "line"\nsecond ö \ud800')
        assert server.bodies == ['first "line"\nsecond ö ?'.encode()]
        assert "text/plain" in server.heads[0]


@pytest.mark.parametrize("output", [{"n": float("nan")}, {"n": object()}], ids=["NaN", "object"])
def test_an_outcome_that_is_no_json_is_refused_before_it_is_sent(output: dict[str, Any]) -> None:
    with (
        GarbageServer(Replies(b"")) as server,
        closing(ConductorAttempts(conductor(server.url))) as attempts,
    ):
        with pytest.raises(BackendRefusedError, match="JSON"):
            attempts.complete(CLAIM, Completed(output), [])
        assert server.requests == []


def test_a_completion_is_taken_once_it_is_answered_with_the_tasks_id() -> None:
    with (
        GarbageServer(Replies(answer("200 OK", b"task"))) as server,
        closing(ConductorAttempts(conductor(server.url))) as attempts,
    ):
        attempts.complete(CLAIM, Completed({"text": "\ud800"}), ["line"])
        sent = json.loads(server.bodies[0])
        assert (sent["taskId"], sent["workerId"], sent["status"]) == ("task", "token", "COMPLETED")
        assert sent["logs"] == [{"log": "line", "taskId": "task"}]


class Guarded:
    """A Conductor with access keys: a token works until it is revoked."""

    def __init__(self) -> None:
        self.tokens = 0
        self.valid = ""
        self.server = GarbageServer(self._answer)

    def _answer(self) -> Iterator[bytes]:
        head = self.server.heads[-1]
        if head.startswith("POST /api/token "):
            self.tokens += 1
            self.valid = f"jwt-{self.tokens}"
            return iter([says({"token": self.valid, "userId": "u"})])
        if f"X-Authorization: {self.valid}\r\n" not in f"{head}\r\n" or not self.valid:
            return iter([says({"message": "expired", "error": "EXPIRED_TOKEN"}, "401 No")])
        return iter([says(TASK)])


def test_a_token_is_fetched_once_and_anew_when_it_is_refused() -> None:
    guarded = Guarded()
    with (
        guarded.server as server,
        closing(ConductorAttempts(conductor(server.url, **KEYS))) as attempts,
    ):
        attempts.read("task")
        attempts.read("task")
        assert guarded.tokens == 1
        guarded.valid = ""
        attempts.read("task")
        assert guarded.tokens == 2
        assert len(server.requests) == 6
        assert json.loads(server.bodies[0]) == {
            "keyId": "key",
            "keySecret": KEYS["auth_secret"].get_secret_value(),  # type: ignore[attr-defined]
        }


def test_a_conductor_without_access_keys_is_asked_for_a_token_once() -> None:
    missing = says(MISSING, "404 Not Found")
    good = {"GET ": says(TASK)}
    with (
        GarbageServer(Replies(missing), good) as server,
        closing(ConductorAttempts(conductor(server.url, **KEYS))) as attempts,
    ):
        attempts.read("task")
        attempts.read("task")
        assert [line.split()[0] for line in server.requests] == ["POST", "GET", "GET"]


def test_a_conductor_that_asks_for_a_token_after_all_is_given_one() -> None:
    """One 404 at the start, of a server that was not up yet, is not for the life of a client."""
    denied = says({**MISSING, "status": 401}, "401 Unauthorized")
    replies = Replies(
        says(MISSING, "404 Not Found"), says(TASK), denied, says({"token": "jwt"}), says(TASK)
    )
    with (
        GarbageServer(replies) as server,
        closing(ConductorAttempts(conductor(server.url, **KEYS), tries=1)) as attempts,
    ):
        attempts.read("task")
        attempts.read("task")
        attempts.read("task")
        asked = [line.split()[0] for line in server.requests]
        assert asked == ["POST", "GET", "GET", "POST", "GET", "GET"]
        assert ["X-Authorization: jwt" in head for head in server.heads[4:]] == [True, True]


def test_a_gateways_404_in_place_of_a_token_is_an_outage_and_is_not_remembered() -> None:
    replies = Replies(gateway_answer("404 Not Found"), says({"token": "jwt"}), says(TASK))
    with (
        GarbageServer(replies) as server,
        closing(ConductorAttempts(conductor(server.url, **KEYS), tries=1)) as attempts,
    ):
        with pytest.raises(BackendUnavailableError):
            attempts.read("task")
        attempts.read("task")
        assert "X-Authorization: jwt" in server.heads[2]


def test_a_token_that_cannot_be_fetched_loses_no_change() -> None:
    with (
        GarbageServer(Replies(answer("200 OK", PAGE))) as server,
        closing(ConductorAttempts(conductor(server.url, **KEYS))) as attempts,
    ):
        with pytest.raises(BackendUnavailableError) as caught:
            attempts.complete(CLAIM, Completed({}), [])
        assert type(caught.value) is BackendUnavailableError


def test_an_error_repeats_no_secret() -> None:
    token, secret = "jwt-of-this-test", KEYS["auth_secret"].get_secret_value()  # type: ignore[attr-defined]
    said = f"you sent {token} and {secret}"
    echo = says({"status": 403, "message": said, "retryable": False}, "403 Forbidden")
    with (
        GarbageServer(Replies(echo), {"POST /api/token ": says({"token": token})}) as server,
        closing(ConductorAttempts(conductor(server.url, **KEYS), tries=1)) as attempts,
    ):
        with pytest.raises(BackendDeniedError, match="you sent") as caught:
            attempts.read("task")
        assert token not in str(caught.value)
        assert secret not in str(caught.value)


def test_a_token_that_cannot_be_a_header_is_an_outage_and_in_no_error() -> None:
    token = "jwt\r\nX-Other: value"
    with (
        GarbageServer(Replies(says({"token": token}))) as server,
        closing(ConductorAttempts(conductor(server.url, **KEYS), tries=1)) as attempts,
    ):
        with pytest.raises(BackendUnavailableError) as caught:
            attempts.read("task")
        assert "X-Other" not in str(caught.value)


def test_a_registration_that_cannot_be_sent_is_retried_for_some_seconds() -> None:
    with GarbageServer(Replies(answer("200 OK", b""))) as server:
        url = server.url
    # The port is closed now.
    began = time.monotonic()
    with (
        closing(ConductorTaskDefs(conductor(url))) as taskdefs,
        pytest.raises(BackendUnavailableError) as caught,
    ):
        taskdefs.put({"name": "n"}, exists=False)
    assert type(caught.value) is BackendUnavailableError
    assert 1.0 < time.monotonic() - began < 8.0
