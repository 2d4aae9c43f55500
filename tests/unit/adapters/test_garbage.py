"""Whatever answers in the place of a server, an adapter raises its own errors, and soon."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
from tenacity import wait_none

from perago import retry
from perago.conductor.client import ConductorAttempts
from perago.conductor.inspection import ConductorInspection
from perago.conductor.taskdefs import ConductorTaskDefs
from perago.conductor.workflows import ConductorWorkflows
from perago.errors import BackendUnavailableError, LostReplyError
from perago.lakefs import control, presigned
from perago.lakefs.control import LakeFSControl
from perago.lakefs.objects import LakeFSObjects
from perago.lakefs.presigned import PresignedClient
from support.adapter_calls import ADAPTERS, ID, Call, Patience
from support.garbage_server import ENDLESS, GARBAGE, HERE, SLOW, GarbageServer, placed_answer
from support.uncounted import uncounted

# Eight tries at most, of three seconds each, on a machine that is busy with other tests.
_SECONDS = 40.0


@pytest.fixture(autouse=True)
def _few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_WAIT", wait_none())
    monkeypatch.setattr(control, "_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(control, "_CLEANUP_RETRY_SECONDS", 0.1)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)
def test_every_method_of_an_adapter_is_tried(adapter: type) -> None:
    methods = {name for name, _ in inspect.getmembers(adapter, inspect.isfunction)}
    tried = {name.partition(" ")[0] for name in ADAPTERS[adapter][1]}
    assert {name for name in methods if not name.startswith("_")} - {"close"} == tried


# One for each client below them, which judges what is no answer at all.
_CLIENTS = (LakeFSControl, LakeFSObjects, PresignedClient, ConductorAttempts)
# What a client can take for an answer, and a method must not.
_FOR_ALL = ("200 with", "404 with", "a gateway's")
_FIRST = [kind for kind in SLOW if kind in {"silence", "a dripping body"}]
# Those that make a client wait do so at the same time: not all at once, since each has a server,
# and to prepare a request must not take as long as the client waits.
_KINDS = {kind: [kind] for kind in GARBAGE if kind not in SLOW} | {
    "slow answers": _FIRST,
    "other slow answers": [kind for kind in SLOW if kind not in _FIRST],
}
_NO_ANSWERS = [name for name in _KINDS if not name.startswith(_FOR_ALL)]


@pytest.fixture(autouse=True)
def _uncounted() -> Iterator[None]:
    with uncounted():
        yield


@pytest.mark.parametrize(
    ("adapter", "name"),
    [
        pytest.param(adapter, name, marks=pytest.mark.slow if name in _NO_ANSWERS else ())
        for adapter, name in product(ADAPTERS, _KINDS)
    ],
)
def test_garbage_is_an_outage_and_after_a_change_a_lost_reply(
    monkeypatch: pytest.MonkeyPatch, adapter: type, name: str
) -> None:
    _try(monkeypatch, adapter, _KINDS[name], ADAPTERS[adapter][1])


@pytest.mark.parametrize(("adapter", "name"), list(product(_CLIENTS, _NO_ANSWERS)))
def test_what_is_no_answer_is_an_outage_and_after_a_change_a_lost_reply(
    monkeypatch: pytest.MonkeyPatch, adapter: type, name: str
) -> None:
    """Its client judges it, so that methods of one sort are alike: one of each is called."""
    calls = ADAPTERS[adapter][1]
    sorts = {(call.changes, call.good): each for each, call in reversed(calls.items())}
    _try(monkeypatch, adapter, _KINDS[name], {each: calls[each] for each in sorts.values()})


def _try(
    monkeypatch: pytest.MonkeyPatch, adapter: type, kinds: list[str], calls: Mapping[str, Call]
) -> None:
    if kinds[0] in ENDLESS:
        monkeypatch.setattr(Patience, "seconds", Patience.of_endless)
        monkeypatch.setattr(control, "_CLEANUP_SECONDS", Patience.of_endless)
        monkeypatch.setattr(presigned, "PIECE_PATIENCE", 1)
    opened = ADAPTERS[adapter][0]

    def attempt(case: tuple[str, str]) -> tuple[object, float]:
        call = calls[case[1]]
        garbage = GARBAGE[case[0]]
        with GarbageServer(garbage, dict(call.good)) as server, opened(server.url) as client:
            began = time.monotonic()
            try:
                outcome: object = call.make(client)
            except Exception as error:  # noqa: BLE001  its type is what is looked at
                outcome = type(error)
            return outcome, time.monotonic() - began

    cases = list(product(kinds, calls))
    with ThreadPoolExecutor(len(cases)) as pool:
        results = dict(zip(cases, pool.map(attempt, cases), strict=True))
    outcomes = {case: outcome for case, (outcome, _) in results.items()}
    expected = {
        case: LostReplyError if calls[case[1]].changes else BackendUnavailableError
        for case in cases
    }
    assert outcomes == expected
    assert max(seconds for _, seconds in results.values()) < _SECONDS


# Good answers, but for one number each.
_COMMIT = {"id": ID, "parents": [], "creation_date": 1}
_OBJECT = {"path": "key", "path_type": "object", "size_bytes": 7, "physical_address": f"{HERE}/x"}
_TASK = {
    "taskId": "task",
    "workflowInstanceId": "workflow",
    "status": "IN_PROGRESS",
    "referenceTaskName": "step",
    "taskType": "type",
}
_WORKFLOW = {"workflowId": "workflow", "status": "RUNNING"}


def _page(entry: object) -> object:
    return {"results": [entry], "pagination": {"has_more": False}}


def _numbered(good: Mapping[str, object], *names: str) -> list[dict[str, object]]:
    """An answer for each of the fields, which has a number that no server means."""
    return [{**good, name: 10**400} for name in names]


_NUMBERS: list[tuple[type, str, list[object]]] = [
    (LakeFSControl, "get_commit", [*_numbered(_COMMIT, "creation_date")]),
    (
        LakeFSObjects,
        "list",
        # An object without a size would become an empty file.
        [_page(it) for it in (*_numbered(_OBJECT, "size_bytes"), {**_OBJECT, "size_bytes": None})],
    ),
    (
        LakeFSObjects,
        "changes",
        [_page(it) for it in _numbered({"path": "a", "type": "added"}, "size_bytes")],
    ),
    (LakeFSObjects, "delete", [{"errors": _numbered({"message": "no"}, "status_code")}]),
    (
        PresignedClient,
        "read (an address)",
        [*_numbered(_OBJECT, "size_bytes", "physical_address_expiry")],
    ),
    (
        PresignedClient,
        "read (addresses)",
        [_page(it) for it in _numbered(_OBJECT, "size_bytes", "physical_address_expiry")],
    ),
    (
        ConductorAttempts,
        "read",
        [
            *_numbered(
                _TASK, "retryCount", "seq", "iteration", "scheduledTime", "responseTimeoutSeconds"
            )
        ],
    ),
    (ConductorAttempts, "find_waiting", [{"task": 10**400}]),
    (ConductorInspection, "task", [*_numbered(_TASK, "startTime", "updateTime", "endTime")]),
    (ConductorInspection, "queues", [{"task": 10**400}]),
    (
        ConductorTaskDefs,
        "response_timeouts",
        [_numbered({"name": "n"}, "responseTimeoutSeconds")],
    ),
    (
        ConductorWorkflows,
        "read",
        [
            *_numbered(_WORKFLOW, "startTime", "endTime", "createTime", "workflowVersion"),
            *(
                {**_WORKFLOW, "tasks": [task]}
                for task in _numbered(
                    _TASK, "startTime", "endTime", "callbackAfterSeconds", "startDelayInSeconds"
                )
            ),
        ],
    ),
    (ConductorWorkflows, "last_poll_ms", [_numbered({}, "lastPollTime")]),
]


@pytest.mark.parametrize(
    ("adapter", "method", "body"),
    [
        pytest.param(adapter, method, body, id=f"{adapter.__name__}-{method}-{number}")
        for adapter, method, bodies in _NUMBERS
        for number, body in enumerate(bodies)
    ],
)
def test_a_number_that_no_server_means_is_garbage_too(
    adapter: type, method: str, body: object
) -> None:
    opened, calls = ADAPTERS[adapter]
    said = placed_answer("200 OK", json.dumps(body).encode())
    expected = LostReplyError if calls[method].changes else BackendUnavailableError
    with (
        GarbageServer(lambda: iter([said.replace(HERE.encode(), b"http://127.0.0.1:1")])) as server,
        opened(server.url) as client,
        pytest.raises(expected),
    ):
        calls[method].make(client)
