"""What stands before every page: GET only, this machine's own name, the token, strict headers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perago.servers.loopback import LOOPBACK
from perago.text import as_utf8

TOKEN = "token"  # noqa: S105  the name of the parameter
_LONGEST_QUERY = 2000
# Nothing from elsewhere, nothing inline, no frame around it, nowhere to send a form.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets a request through that has the token, in its address or in the cookie.

    The token in an address is exchanged for the cookie at once, so that it stays in no history and
    in no address that is copied from the browser.
    """

    def __init__(self, app: ASGIApp, token: str, *, port: int) -> None:
        self._app = app
        self._token = token
        # Browsers send a cookie to every port of a host: each dashboard has a name of its own.
        self._cookie = f"perago_{port}"
        self._hosts = frozenset(f"{host}:{port}" for host in (LOOPBACK, "localhost"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._judge(scope)
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        else:
            await refusal(scope, receive, _with_headers(send))

    def _judge(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] != "GET":
            return PlainTextResponse("GET only\n", 405, {"Allow": "GET"})
        # A page of another site whose name was pointed here must not read anything.
        if headers.get("host", "") not in self._hosts:
            return PlainTextResponse("this is the dashboard of another host\n", 421)
        query = scope["query_string"]
        if len(query) > _LONGEST_QUERY:
            return PlainTextResponse("the address is too long\n", 414)
        fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in fields if name == TOKEN]
        if given:
            rest = [(name, value) for name, value in fields if name != TOKEN]
            return self._exchange(scope, given, rest)
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie)
        return None if cookie is not None and self._is_token(cookie) else _refused()

    def _exchange(
        self, scope: Scope, given: Sequence[str], rest: Sequence[tuple[str, str]]
    ) -> Response:
        if len(given) != 1 or not self._is_token(given[0]):
            return _refused()
        # One slash: a path of two would name another host.
        path = "/" + as_utf8(scope["path"]).lstrip("/\\")
        response = RedirectResponse(f"{path}?{urlencode(rest)}" if rest else path, 303)
        # Lax: a link in another page may open the dashboard, and nothing else may use the cookie.
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="lax", path="/")
        return response

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())


def _refused() -> Response:
    return PlainTextResponse(
        "This dashboard opens with a token. Use the whole address that `perago start --ui` or "
        "`perago dev up` printed.\n",
        403,
    )


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sending
