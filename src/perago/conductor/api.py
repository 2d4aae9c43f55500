"""Conductor's REST API: one bounded request per call, every answer validated."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter
from pydantic.alias_generators import to_camel

from perago.conductor.errors import from_answer, translated
from perago.connections import ConductorConnection
from perago.errors import BackendRefusedError, BackendUnavailableError, NotFoundError
from perago.http_client import Answer, HttpClient
from perago.http_errors import parse_deep_json, parse_json
from perago.retry import retrying_times, retrying_unsent

Parsed = TypeVar("Parsed")
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
# How servers with access keys say that a token must be fetched anew, besides 401.
_DEAD_TOKEN = (b"EXPIRED_TOKEN", b"INVALID_TOKEN")

_Id = Annotated[str, StringConstraints(min_length=1)]
# What 64 bits hold: larger numbers are of no server, and no float.
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
# In milliseconds, bounded by the years that a datetime can hold.
Moment = Annotated[int, Field(ge=0, lt=1 << 47)]
# Bounded so that they can be added to any moment.
Seconds = Annotated[float, Field(ge=0, lt=1 << 36, allow_inf_nan=False)]


class ConductorMessage(BaseModel):
    """A part of an answer: the fields that are used, which must have their types."""

    model_config = ConfigDict(
        alias_generator=to_camel, strict=True, frozen=True, hide_input_in_errors=True
    )


class TaskMessage(ConductorMessage):
    """A task, as polls and reads answer it."""

    task_id: _Id
    workflow_instance_id: _Id
    status: Annotated[str, StringConstraints(pattern=r"^[A-Z_]+$")]
    reference_task_name: _Id
    task_type: _Id
    task_def_name: str | None = None
    workflow_type: str | None = None
    worker_id: str | None = None
    retried_task_id: str | None = None
    reason_for_incompletion: str | None = None
    retry_count: Count = 0
    seq: Count = 0
    iteration: Count = 0
    scheduled_time: Moment = 0
    response_timeout_seconds: Seconds = 0.0
    input_data: dict[str, Any] | None = None


class TaskTimesMessage(TaskMessage):
    """A task with its times and its output, as people look at it."""

    start_time: Moment = 0
    end_time: Moment = 0
    output_data: dict[str, Any] | None = None


class WorkflowMessage(ConductorMessage):
    """A workflow without its tasks."""

    workflow_id: _Id
    status: _Id
    end_time: Moment | None = None


class WorkflowTimesMessage(WorkflowMessage):
    """A workflow with its name, its times and its end, as people look at it."""

    workflow_name: str | None = None
    start_time: Moment | None = None
    create_time: Moment | None = None
    reason_for_incompletion: str | None = None

    @property
    def started_ms(self) -> int:
        return self.start_time or self.create_time or 0


Task = TypeVar("Task", bound=TaskMessage)
Instance = TypeVar("Instance", bound=WorkflowMessage)


class _ConfigMessage(ConductorMessage):
    """What Conductor tells of itself; of its settings, which may be secret, nothing is kept."""

    version: _Id


class _TokenMessage(ConductorMessage):
    # Sent as a header: visible ASCII only.
    token: Annotated[str, StringConstraints(pattern=r"^[!-~]+$")]


TASK = TypeAdapter(TaskMessage)
# Each of them is read by itself.
TASKS = TypeAdapter(list[Any])
WORKFLOW = TypeAdapter(WorkflowMessage)
SIZES = TypeAdapter(dict[str, Count])
TASKDEF = TypeAdapter(dict[str, Any])
CONFIG = TypeAdapter(_ConfigMessage)
_TOKEN = TypeAdapter(_TokenMessage)


def parsed(kind: TypeAdapter[Parsed]) -> Callable[[bytes], Parsed]:
    """Return a reader of bodies that hold ``kind`` as JSON; they may hold an input of any depth."""
    return lambda body: kind.validate_python(parse_deep_json(body))


def shallow(kind: TypeAdapter[Parsed]) -> Callable[[bytes], Parsed]:
    """Return a reader of bodies that hold no input or output, which alone may be deep."""
    return lambda body: kind.validate_python(parse_json(body))


def exactly(text: str) -> Callable[[bytes], None]:
    """Return a reader of bodies that must be ``text``, plain or as JSON."""

    def read(body: bytes) -> None:
        if body.strip() not in {text.encode(), json.dumps(text).encode()}:
            raise ValueError("the answer does not name what was asked for")

    return read


class ConductorApi:
    """Sends requests with our timeouts, and with a token where keys are set. Thread-safe."""

    def __init__(self, connection: ConductorConnection) -> None:
        self._connection = connection
        self._http = HttpClient(connection.api, connect_timeout=connection.connect_timeout)
        self._lock = Lock()
        self._token: str | None = None
        self._has_keys = bool(connection.auth_key and connection.auth_secret)
        # Whether Conductor said that it gives out none; believed until it asks for one.
        self._gives_no_tokens = False

    def close(self) -> None:
        """Close the connections; nothing can be asked afterwards."""
        self._http.close()

    @property
    def clock_difference(self) -> float | None:
        """How many seconds Conductor's clock is ahead, by its last answer."""
        return self._http.clock_difference

    def get(
        self,
        what: str,
        path: str,
        read: Callable[[bytes], Parsed],
        query: Mapping[str, Any] | None = None,
        *,
        changes: bool = False,
        extra_seconds: float = 0.0,
    ) -> Parsed | None:
        """Send a GET request; None for an answer that says "nothing there" (204)."""
        with translated(what, changes=changes):
            answer = self._send(what, "GET", path, {}, query=query, extra_seconds=extra_seconds)
            return None if self._is_empty(what, answer, changes=changes) else read(answer.body)

    def change(
        self,
        what: str,
        method: str,
        path: str,
        body: Any,
        read: Callable[[bytes], None],
        *,
        unsent_seconds: float = 0.0,
    ) -> None:
        """Send a change: text as it is, anything else as JSON.

        For ``unsent_seconds`` it is retried as long as it was not sent at all.
        """
        with translated(what, changes=True):
            content, kind = _encoded(what, body)
            headers = {"Content-Type": kind}
            retrier = retrying_unsent(unsent_seconds)
            answer = retrier(self._send, what, method, path, headers, content)
            if not self._is_empty(what, answer, changes=True):
                read(answer.body)

    def _is_empty(self, what: str, answer: Answer, *, changes: bool) -> bool:
        if answer.status not in {200, 204}:
            raise from_answer(what, answer, changes=changes, secrets=self._secrets())
        return answer.status == 204

    def _send(
        self,
        what: str,
        method: str,
        path: str,
        headers: dict[str, str],
        content: bytes | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        extra_seconds: float = 0.0,
    ) -> Answer:
        """Send one request; once more, with a new token, if the server knows the old one no more.

        A server that refuses a token has not carried out the request.
        """
        headers = {"Accept": f"{_JSON}, text/plain", **headers}
        seconds = self._seconds + extra_seconds

        def send(token: str | None) -> Answer:
            sent = {**headers, "X-Authorization": token} if token else headers
            return self._http.request(
                method, path, seconds=seconds, query=query, headers=sent, content=content
            )

        token = self._current_token(what)
        answer = send(token)
        if self._has_keys and _refuses_token(answer):
            fresh = self._current_token(what, refused=token, is_asked_for=True)
            if fresh is not None:
                answer = send(fresh)
        return answer

    @property
    def _seconds(self) -> float:
        return self._connection.connect_timeout + self._connection.read_timeout

    def _current_token(
        self, what: str, refused: str | None = None, *, is_asked_for: bool = False
    ) -> str | None:
        """Return the token, fetched if there is none or if it is the refused one.

        None where Conductor has no access keys. What says so may be wrong, such as a proxy that
        starts: once Conductor itself asks for a token, it is asked again.
        """
        with self._lock:
            if not self._has_keys or (self._gives_no_tokens and not is_asked_for):
                return None
            if self._token in {None, refused}:
                try:
                    # Nothing of the request itself has been sent yet: no change can be lost.
                    with translated(what):
                        self._token = self._fetch_token(what)
                    self._gives_no_tokens = False
                except NotFoundError:
                    self._token, self._gives_no_tokens = None, True
            return self._token

    def _fetch_token(self, what: str) -> str:
        secret = self._connection.auth_secret
        keys = {
            "keyId": self._connection.auth_key,
            "keySecret": secret.get_secret_value() if secret else "",
        }
        headers = {"Accept": _JSON, "Content-Type": _JSON}
        answer = self._http.request(
            "POST",
            "/token",
            seconds=self._seconds,
            headers=headers,
            content=json.dumps(keys).encode(),
        )
        if answer.status != 200:
            step = f"get a token to {what}"
            raise from_answer(step, answer, changes=False, secrets=self._secrets())
        return parsed(_TOKEN)(answer.body).token

    def _secrets(self) -> list[str]:
        secret = self._connection.auth_secret
        return [text for text in (self._token, secret and secret.get_secret_value()) if text]


def read_task(api: ConductorApi, task_id: str, kind: TypeAdapter[Task], tries: int) -> Task:
    """Read a task; raises ``NotFoundError`` where there is none."""
    what, path = f"read task {task_id}", f"/tasks/{segment(task_id)}"

    def once() -> Task:
        found = api.get(what, path, parsed(kind))
        if found is None:
            raise NotFoundError(f"Conductor has no task {task_id}")
        if found.task_id != task_id:
            raise BackendUnavailableError(f"Conductor answered with another task to {what}")
        return found

    return retrying_times(tries)(once)


def read_workflow(
    api: ConductorApi,
    workflow_id: str,
    kind: TypeAdapter[Instance],
    tries: int,
    *,
    with_tasks: bool = True,
) -> Instance:
    """Read a workflow instance; raises ``NotFoundError`` where there is none."""
    what, path = f"read workflow {workflow_id}", f"/workflow/{segment(workflow_id)}"
    query = {"includeTasks": "true" if with_tasks else "false"}

    def once() -> Instance:
        found = api.get(what, path, parsed(kind), query)
        if found is None:
            raise NotFoundError(f"Conductor has no workflow {workflow_id}")
        if found.workflow_id != workflow_id:
            raise BackendUnavailableError(f"Conductor answered with another workflow to {what}")
        return found

    return retrying_times(tries)(once)


def segment(text: str) -> str:
    """Quote a name as one segment of a path."""
    return quote(text, safe="")


def _refuses_token(answer: Answer) -> bool:
    if answer.status == 403:
        return any(sign in answer.body for sign in _DEAD_TOKEN)
    return answer.status == 401


def _encoded(what: str, body: Any) -> tuple[bytes, str]:
    if isinstance(body, str):
        return body.encode("utf-8", "replace"), _TEXT
    try:
        return json.dumps(body, allow_nan=False).encode(), _JSON
    except (ValueError, TypeError, RecursionError) as error:
        reason = type(error).__name__ if isinstance(error, RecursionError) else str(error)
        raise BackendRefusedError(
            f"Conductor could not {what}: it cannot be written as JSON: {reason}"
        ) from None
