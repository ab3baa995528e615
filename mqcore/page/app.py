"""The page as an ASGI application: its paths, and the guard before all pages."""
from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import import_module
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from mqcore.client import AsyncAdmin
from mqcore.page import rendering
from mqcore.page.asking import ERRORS, Cluster, code_of, text_of
from mqcore.page.context import STATUS, BadParameterError, BusyError, Handler, Page, Site
from mqcore.page.guard import COOKIE, Guard
from mqcore.page.sampler import Sampler
from mqcore.page.sessions import login, logout
from mqcore.page.users import Session

GET, BOTH = ["GET"], ["GET", "POST"]
FOREVER = "public, max-age=31536000, immutable"        # the URL of a file has its hash

# path -> module of mqcore/page/pages and its coroutine, loaded when it is first asked for.
PAGES: dict[str, tuple[str, str, list[str]]] = {
    "/": ("overview", "overview", GET),
    "/live": ("overview", "live", GET),
    "/history": ("overview", "history", GET),
    "/find": ("overview", "find", GET),
    "/topics": ("topics", "topics", GET),
    "/topic": ("topics", "topic", GET),
    "/groups": ("groups", "groups", GET),
    "/group": ("groups", "group", GET),
    "/messages": ("messages", "messages", GET),
    "/message": ("messages", "message", GET),
    "/message/groups": ("messages", "groups", GET),
    "/message/body": ("messages", "body", GET),
    "/tail": ("tail", "tail", GET),
    "/tail/events": ("tail", "events", GET),
    "/dead-letters": ("dead_letters", "dead_letters", GET),
    "/dead-letters/group": ("dead_letters", "of_group", GET),
    "/dead-letters/export": ("dead_letters", "export", GET),
    "/tasks": ("tasks", "tasks", GET),
    "/task": ("tasks", "task", BOTH),
    "/transactions": ("transactions", "transactions", GET),
    "/transaction": ("transactions", "transaction", GET),
    "/delayed": ("delayed", "delayed", GET),
    "/trace": ("traces", "trace", GET),
    "/clients": ("clients", "clients", GET),
    "/client": ("clients", "client", GET),
    "/store": ("store", "store", GET),
    "/settings": ("settings", "settings", GET),
    "/access": ("access", "access", GET),
    "/audit": ("audit", "audit", GET),
    "/change": ("change", "change_page", BOTH),
}

log = logging.getLogger("mqcore.page")


class Files(StaticFiles):
    """The files of `static`."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        """A file, which a browser keeps."""
        response = super().file_response(*arguments, **options)
        response.headers["Cache-Control"] = FOREVER
        return response


def application(site: Site) -> Starlette:
    """The application of a site. It opens nothing before the first request."""
    for cluster in site.clusters:
        site.samplers[cluster.base] = Sampler(_sampling_admin(site, cluster))
    routes: list[BaseRoute] = [
        Mount("/static", Files(directory=rendering.STATIC), name="static"),
        Route("/login", _plain(site, login), name="login", methods=BOTH),
        Route("/logout", _plain(site, logout), methods=["POST"]),
    ]
    for cluster in site.clusters:
        routes += [Route(cluster.base + path, _endpoint(site, cluster, module, name),
                         methods=methods) for path, (module, name, methods) in PAGES.items()]
    if all(cluster.base for cluster in site.clusters):
        first = site.clusters[0].base
        routes.append(Route("/", lambda _request: RedirectResponse(first + "/")))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await site.close()

    return Starlette(
        routes=routes, lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _error},
        middleware=[Middleware(Guard, users=lambda: site.users, hosts=lambda: site.hosts,
                               write=lambda: site.write)])


def _sampling_admin(site: Site, cluster: Cluster) -> Callable[[], Awaitable[AsyncAdmin | None]]:
    async def admin() -> AsyncAdmin | None:
        """As the cluster's own account, else as the one that logged in last."""
        if cluster.credentials is not None or site.users.account is None:
            return await cluster.admin()
        newest = site.users.newest_account()
        return None if newest is None else await cluster.admin(newest)

    return admin


def _endpoint(
    site: Site, cluster: Cluster, module: str, name: str,
) -> Callable[[Request], Awaitable[Response]]:
    async def run(request: Request) -> Response:
        handler: Handler = getattr(import_module(f"mqcore.page.pages.{module}"), name)
        session, cookie = _session(site, request)
        try:
            admin = await cluster.admin(session.credentials if session else None,
                                        site.masks_for(session))
        except ERRORS as error:
            return PlainTextResponse(text_of(error) + "\n", HTTPStatus.BAD_GATEWAY)
        site.samplers[cluster.base].begin()
        page = Page(request, site, cluster, admin, session)
        try:
            response = await handler(page)
        except BadParameterError as error:
            response = page.trouble(HTTPStatus.BAD_REQUEST, str(error))
        except BusyError as error:
            response = page.trouble(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except ERRORS as error:
            response = page.trouble(STATUS.get(code_of(error), HTTPStatus.BAD_GATEWAY),
                                    text_of(error))
        except TimeoutError as error:
            response = page.trouble(HTTPStatus.GATEWAY_TIMEOUT, str(error) or "no answer in time")
        if cookie:
            set_cookie(response, cookie)
        return response

    return run


def _session(site: Site, request: Request) -> tuple[Session | None, str]:
    """The session of a request; forms need one, so with http.write each browser gets one."""
    session: Session | None = request.scope.get("session")
    if session is not None or not site.write:
        return session, ""
    cookie = site.users.begin()
    return site.users.session(cookie), cookie


def set_cookie(response: Response, value: str) -> None:
    """The cookie of a session: no script reads it, no other site sends it."""
    response.set_cookie(COOKIE, value, httponly=True, samesite="strict", path="/")


def _plain(
    site: Site, handler: Callable[[Site, Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    async def run(request: Request) -> Response:
        return await handler(site, request)

    return run


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(f"{error.detail}\n", error.status_code)


async def _error(request: Request, error: Exception) -> Response:
    """An error of ours: it is logged whole, and the browser learns only that there was one."""
    log.error("%s %s: %s", request.method, request.url.path, error, exc_info=error)
    return PlainTextResponse(f"an error in the page, logged at {time.strftime('%H:%M:%S')}\n",
                             HTTPStatus.INTERNAL_SERVER_ERROR)
