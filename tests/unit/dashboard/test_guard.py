"""Who gets in, with what, and with which headers the pages come."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from perago.dashboard import app, server
from perago.dashboard.server import Dashboard
from perago.errors import SetupError
from support import dashboard_world
from support.waiting import until


@pytest.fixture(scope="module")
def dashboard() -> Iterator[Dashboard]:
    with Dashboard(dashboard_world.empty().sources, port=0) as served:
        yield served


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20, trust_env=False) as opened:
        yield opened


def token_of(dashboard: Dashboard) -> str:
    return dashboard.url.partition("token=")[2]


def without_token(dashboard: Dashboard) -> str:
    return dashboard.url.partition("/?")[0]


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address(
    dashboard: Dashboard, client: httpx.Client
) -> None:
    given = client.get(f"{dashboard.url}&limit=50")
    assert (given.status_code, given.headers["location"]) == (303, "/?limit=50")
    cookie = given.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert client.get(without_token(dashboard) + "/").status_code == 200


@pytest.mark.parametrize("query", ["", "?token=", "?token=wrong", "?token=é"])
def test_without_the_token_nothing_is_shown(
    dashboard: Dashboard, client: httpx.Client, query: str
) -> None:
    for path in ("/", "/static/perago.js", "/live/", "/nothing"):
        refused = client.get(f"{without_token(dashboard)}{path}{query}")
        assert refused.status_code == 403
        assert "perago start --ui" in refused.text
        assert token_of(dashboard) not in refused.text
        assert "set-cookie" not in refused.headers


def test_two_tokens_are_not_a_token(dashboard: Dashboard, client: httpx.Client) -> None:
    assert client.get(f"{dashboard.url}&token=other").status_code == 403


def test_a_wrong_cookie_is_refused(dashboard: Dashboard, client: httpx.Client) -> None:
    port = httpx.URL(dashboard.url).port
    refused = client.get(without_token(dashboard), headers={"Cookie": f"perago_{port}=x"})
    assert refused.status_code == 403


def test_the_exchange_redirects_to_this_host_only(
    dashboard: Dashboard, client: httpx.Client
) -> None:
    given = client.get(f"{without_token(dashboard)}//example.com/?token={token_of(dashboard)}")
    assert given.headers["location"] == "/example.com/"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
def test_only_get_is_answered(dashboard: Dashboard, client: httpx.Client, method: str) -> None:
    refused = client.request(method, dashboard.url)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")


def test_another_host_s_name_is_refused(dashboard: Dashboard, client: httpx.Client) -> None:
    refused = client.get(dashboard.url, headers={"Host": "evil.example.com"})
    assert refused.status_code == 421


def test_a_very_long_address_is_refused(dashboard: Dashboard, client: httpx.Client) -> None:
    assert client.get(f"{dashboard.url}&x={'y' * 3000}").status_code == 414


def test_every_answer_has_the_strict_headers(dashboard: Dashboard, client: httpx.Client) -> None:
    client.get(dashboard.url)
    base = without_token(dashboard)
    for path in ("/", "/nothing", "/static/perago.css", "/static/none.css", "/?token=wrong"):
        headers = client.get(base + path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_static_files_come_with_their_types(dashboard: Dashboard, client: httpx.Client) -> None:
    client.get(dashboard.url)
    base = without_token(dashboard)
    for name, kind in (("perago.css", "text/css"), ("perago.js", "text/javascript")):
        assert client.get(f"{base}/static/{name}").headers["content-type"].startswith(kind)
    assert client.get(f"{base}/static/mark.svg").headers["content-type"] == "image/svg+xml"
    for outside in ("..%2fapp.py", "%2e%2e/app.py", "templates/base.html"):
        assert client.get(f"{base}/static/{outside}").status_code == 404


def test_the_token_is_in_no_log(
    dashboard: Dashboard, client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    # httpx is the browser here, whose own log is no concern.
    logging.getLogger("httpx").setLevel(logging.CRITICAL)
    logging.getLogger("httpcore").setLevel(logging.CRITICAL)
    with caplog.at_level(logging.DEBUG):
        client.get(dashboard.url)
        client.get(dashboard.url + "x")
    assert token_of(dashboard) not in caplog.text


def test_a_taken_port_is_an_error_that_says_what_to_do(dashboard: Dashboard) -> None:
    port = httpx.URL(dashboard.url).port
    sources, closed = dashboard_world.empty().sources, threading.Event()
    sources._held.callback(closed.set)
    with (
        pytest.raises(SetupError, match=f"cannot listen on 127.0.0.1:{port}"),
        Dashboard(sources, port=port),
    ):
        pass
    assert closed.is_set()


def test_a_taken_preferred_port_is_replaced() -> None:
    with (
        Dashboard(dashboard_world.empty().sources) as first,
        Dashboard(dashboard_world.empty().sources) as second,
    ):
        assert httpx.URL(first.url).port != httpx.URL(second.url).port
        assert token_of(first) != token_of(second)


def test_a_stopped_dashboard_ends_its_streams_and_answers_no_more() -> None:
    with (
        Dashboard(dashboard_world.empty().sources, port=0) as dashboard,
        httpx.Client(timeout=20, trust_env=False) as client,
    ):
        base = without_token(dashboard)
        client.get(dashboard.url)
        with client.stream("GET", f"{base}/live/") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 3000"
            dashboard.__exit__(None, None, None)
            assert list(lines)[-1] == ""
        with pytest.raises(httpx.TransportError):
            client.get(base)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: "])
def test_whoever_connects_and_asks_for_nothing_blocks_no_page(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 0.3, raising=False)
    with (
        Dashboard(dashboard_world.empty().sources, port=0) as dashboard,
        ExitStack() as held,
    ):
        at = httpx.URL(dashboard.url)
        for _ in range(64):
            silent = held.enter_context(socket.create_connection((at.host, at.port or 0)))
            silent.sendall(sent)
        until(lambda: client.get(at).status_code != 503, "the page to be there", seconds=2)


def test_a_stream_is_longer_than_the_wait_for_a_request(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(app, "_LIVE_SECONDS", 0.5)
    with Dashboard(dashboard_world.empty().sources, port=0) as dashboard:
        client.get(dashboard.url)
        with client.stream("GET", f"{without_token(dashboard)}/live/") as stream:
            lines = stream.iter_lines()
            until(lambda: next(lines) == ": still here", "the second look")
