"""Logging in and out."""
from __future__ import annotations

import asyncio
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from mqcore.page import rendering, words
from mqcore.page.context import LANGUAGE_COOKIE, Page, Site
from mqcore.page.guard import COOKIE, has_token

FORM_BYTES_MAX = 6 << 20               # a message of 4 MiB, its signs escaped
FIELDS_MAX = 100
LOGIN_BYTES_MAX = 16_384


class FormError(ValueError):
    """A form that is not read; the text says what was expected."""


async def form_of(request: Request, bytes_max: int = FORM_BYTES_MAX) -> dict[str, str]:
    """The fields of a form, each once. Raises FormError."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != (
            "application/x-www-form-urlencoded"):
        raise FormError("expected a form, application/x-www-form-urlencoded")
    read = bytearray()
    async for piece in request.stream():
        read += piece
        if len(read) > bytes_max:
            raise FormError(f"expected a form of at most {bytes_max} bytes")
    try:
        return dict(parse_qsl(read.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX,
                              errors="strict"))
    except ValueError as error:
        raise FormError(f"expected a form of at most {FIELDS_MAX} fields in UTF-8") from error


async def sent_form(page: Page) -> dict[str, str] | Response:
    """The fields of a form that a page of this session has sent; else the page of what is wrong."""
    try:
        sent = await form_of(page.request)
    except FormError as error:
        return page.trouble(HTTPStatus.BAD_REQUEST, str(error))
    if not has_token(page.session, sent.get("token", "")):
        return page.trouble(HTTPStatus.FORBIDDEN,
                            "the form is of another session: load the page again")
    return sent


def local_path(path: str) -> str:
    """A path of this server to go to; "/" in place of what leads elsewhere."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_local else "/"


async def login(site: Site, request: Request) -> Response:
    """The form, and what it sends."""
    then = local_path(request.query_params.get("then", "/"))
    if not site.users.asked:
        return RedirectResponse(then, HTTPStatus.SEE_OTHER)
    if request.method == "GET":
        return _form(request, then, "", HTTPStatus.OK)
    try:
        form = await form_of(request, LOGIN_BYTES_MAX)
    except FormError as error:
        return PlainTextResponse(f"{error}\n", HTTPStatus.BAD_REQUEST)
    name, password = form.get("name", ""), form.get("password", "")
    remote = request.client.host if request.client else ""
    users = site.users
    if not (users.may_try(f"address {remote}") and users.may_try(f"name {name[:100]}")):
        site.trail.add(name, remote, "login", "refused: too many tries")
        return _form(request, then, "Too many tries: wait a minute.",
                     HTTPStatus.TOO_MANY_REQUESTS)
    fits, credentials = await asyncio.to_thread(users.check, name, password)
    if not fits:
        site.trail.add(name, remote, "login", "refused: wrong name or password")
        return _form(request, then, "Wrong name or password.", HTTPStatus.FORBIDDEN)
    users.succeeded(f"address {remote}")
    users.succeeded(f"name {name[:100]}")
    site.trail.add(name, remote, "login", "done")
    response = RedirectResponse(then, HTTPStatus.SEE_OTHER)
    # a new session: a cookie that was there before the login does not become one with an account
    users.end(request.cookies.get(COOKIE, ""))
    response.set_cookie(COOKIE, users.begin(name, credentials), httponly=True, samesite="strict",
                        path="/")
    return response


def _form(request: Request, then: str, error: str, status: HTTPStatus) -> Response:
    language = words.chosen(request.cookies.get(LANGUAGE_COOKIE, ""),
                            request.headers.get("accept-language", ""))
    return Response(rendering.html("login.html", language, then=then, error=error), status,
                    media_type="text/html")


async def logout(site: Site, request: Request) -> Response:
    """End the session."""
    session = request.scope.get("session")
    try:
        form = await form_of(request, LOGIN_BYTES_MAX)
    except FormError as error:
        return PlainTextResponse(f"{error}\n", HTTPStatus.BAD_REQUEST)
    if not has_token(session, form.get("token", "")):
        return PlainTextResponse("expected the token of this session\n", HTTPStatus.FORBIDDEN)
    assert session is not None
    site.users.end(request.cookies.get(COOKIE, ""))
    account = session.credentials
    if account is not None and not site.users.has_sessions_of(account.access_key):
        for cluster in site.clusters:
            await cluster.forget(account.access_key)
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    response.delete_cookie(COOKIE, path="/")
    return response
