"""
The guard before every page: known hosts, sessions, origins of forms; and headers of each answer.

A browser reaches a server of its own machine for any web site. So the Host header must name this
server (DNS rebinding), and a change must come from a page of this server, with the token of its
session.
"""
from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mqcore.http.server import is_own_name
from mqcore.page.users import Session, Users

COOKIE = "mqcore_session"
CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
       "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
HEADERS = {
    "Content-Security-Policy": CSP, "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
}
OPEN_PATHS = ("/static/", "/login")    # without a session
WRITTEN_WITHOUT_LOGIN = ("/login", "/logout")


@dataclass
class Guard:
    """
    The ASGI middleware.

    hosts    names of this server besides addresses and localhost
    write    whether anything may be changed at all
    """

    app: ASGIApp
    users: Callable[[], Users]
    hosts: Callable[[], tuple[str, ...]]
    write: Callable[[], bool]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        request = Request(scope, receive)
        refused = self._refused(request)
        await (refused or self.app)(scope, receive, with_headers)

    def _refused(self, request: Request) -> Response | None:
        if not self._is_known(request.headers):
            return PlainTextResponse("expected an address, localhost, or a name of http.hosts as "
                                     "Host\n", HTTPStatus.BAD_REQUEST)
        users = self.users()
        session = users.session(request.cookies.get(COOKIE, ""))
        request.scope["session"] = session
        path = request.scope["path"]
        if request.method not in ("GET", "HEAD"):
            if request.method != "POST":
                return _said(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET, HEAD or POST")
            if not _is_same_origin(request.headers):
                return _said(HTTPStatus.FORBIDDEN, "expected a request from a page of this server")
            if not self.write() and path not in WRITTEN_WITHOUT_LOGIN:
                return _said(HTTPStatus.NOT_FOUND, "http.write is false: nothing is changed here")
        if users.asked and not _may_see(path) and (session is None or not session.user):
            if request.method == "POST" or request.query_params.get("format") == "json" or (
                    "hx-request" in request.headers):
                return _said(HTTPStatus.UNAUTHORIZED, "log in first: /login")
            target = path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/login?{urlencode({'then': target})}", HTTPStatus.SEE_OTHER)
        return None

    def _is_known(self, headers: Headers) -> bool:
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname if _is_plain(host) else None
        return name is not None and (is_own_name(host) or name in {
            one.lower() for one in self.hosts()})


def _is_plain(host: str) -> bool:
    """Whether a Host field can be one; urlsplit refuses some with an error."""
    try:
        return bool(host) and urlsplit(f"//{host}").netloc == host and "@" not in host
    except ValueError:
        return False


def _may_see(path: str) -> bool:
    return any(path.startswith(one) if one.endswith("/") else path == one for one in OPEN_PATHS)


def _is_same_origin(headers: Headers) -> bool:
    """Whether the page that sent a form is of this server; a request without Origin is refused."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    try:
        origin = urlsplit(headers.get("origin", ""))
    except ValueError:
        return False
    return origin.scheme in ("http", "https") and origin.netloc == headers.get("host")


def _said(status: HTTPStatus, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)


def has_token(session: Session | None, given: str) -> bool:
    """Whether a form brings the token of its session."""
    return session is not None and hmac.compare_digest(
        session.token.encode(), given.encode(errors="replace"))
