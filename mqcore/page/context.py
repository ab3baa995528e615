"""The tools of a page: its request, its cluster, the words of its language, its answer."""
from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote, urlencode

import click
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from mqcore.admin.shell.exits import Exit
from mqcore.page import rendering, words
from mqcore.page.asking import PAGE_S, Answer, Cluster, ask
from mqcore.page.audit import Trail
from mqcore.page.decoders import CHOICES, Schema
from mqcore.page.listing import Listing, listed
from mqcore.page.local import Local
from mqcore.page.masking import Masks, PageAdmin
from mqcore.page.sampler import Sampler
from mqcore.page.tailing import Readers
from mqcore.page.tasks import Tasks
from mqcore.page.users import Session, Users

TEXT_MAX = 4_096                       # of one parameter
SEARCHES_MAX, EXPORTS_MAX = 3, 2       # at a time
GATE_S = PAGE_S
LANGUAGE_COOKIE, THEME_COOKIE = "mqcore_language", "mqcore_theme"
DECODERS_COOKIE = "mqcore_decoders"    # decoder/topic, the last chosen first
DECODERS_MAX = 20
YEAR_S = 365 * 86_400
THEMES = ("light", "dark")
STATUS = {Exit.NOT_FOUND: HTTPStatus.NOT_FOUND, Exit.USAGE: HTTPStatus.BAD_REQUEST,
          Exit.DENIED: HTTPStatus.FORBIDDEN, Exit.UNREACHABLE: HTTPStatus.BAD_GATEWAY,
          Exit.UNKNOWN: HTTPStatus.GATEWAY_TIMEOUT, Exit.REFUSED: HTTPStatus.BAD_GATEWAY}


class BusyError(Exception):
    """There are as many searches as may be at a time; the text says so."""


@dataclass
class Gate:
    """So many of a kind at a time: each may hold SEARCH_BYTES of bodies twice."""

    places: asyncio.Semaphore

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """For one search. Raises BusyError after GATE_S."""
        try:
            async with asyncio.timeout(GATE_S):
                await self.places.acquire()
        except TimeoutError:
            raise BusyError("others search: try again in a moment") from None
        try:
            yield
        finally:
            self.places.release()


@dataclass
class Site:
    """
    One run of the page.

    write   whether forms that change something exist
    local   facts of the broker that serves the page; None: it runs by itself
    schemas of bodies that are protobuf, by topic
    masks   what messages have that only users in `unmasked` see
    """

    clusters: list[Cluster]
    users: Users
    trail: Trail
    write: bool = False
    hosts: tuple[str, ...] = ()
    local: Local | None = None
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    masks: Masks = field(default_factory=Masks)
    unmasked: frozenset[str] = frozenset()
    searches: Gate = field(default_factory=lambda: Gate(asyncio.Semaphore(SEARCHES_MAX)))
    exports: Gate = field(default_factory=lambda: Gate(asyncio.Semaphore(EXPORTS_MAX)))
    readers: Readers = field(default_factory=Readers)
    tasks: Tasks = field(default_factory=Tasks)
    samplers: dict[str, Sampler] = field(default_factory=dict)

    def masks_for(self, session: Session | None) -> Masks | None:
        """The masks for a browser; None: there are none."""
        if not self.masks.masks or (session is not None and session.user in self.unmasked):
            return None
        return self.masks

    async def close(self) -> None:
        """End all that is under way."""
        await self.tasks.close()
        for sampler in self.samplers.values():
            await sampler.close()
        for cluster in self.clusters:
            await cluster.close()


class BadParameterError(ValueError):
    """A parameter of the URL that cannot be; the text names it."""


@dataclass
class Page:
    """One request for a page."""

    request: Request
    site: Site
    cluster: Cluster
    admin: PageAdmin
    session: Session | None

    @property
    def sampler(self) -> Sampler:
        """The newest look at the cluster, and its history."""
        return self.site.samplers[self.cluster.base]

    @property
    def language(self) -> str:
        """Of the query, the cookie, or the browser."""
        return words.chosen(self.request.query_params.get("lang")
                            or self.request.cookies.get(LANGUAGE_COOKIE, ""),
                            self.request.headers.get("accept-language", ""))

    @property
    def theme(self) -> str:
        """"" as the browser wants it."""
        theme = self.request.cookies.get(THEME_COOKIE, "")
        return theme if theme in THEMES else ""

    # -- decoders ---------------------------------------------------------------------------------

    def decoder(self, topic: str) -> str:
        """Of the query, else what this browser chose last for the topic; "" = what fits."""
        chosen = self.text("as")
        return chosen if "as" in self.request.query_params else self._decoders().get(topic, "")

    def remember_decoder(self, response: Response, topic: str) -> None:
        """Where the query chooses one."""
        if "as" in self.request.query_params:
            known = self._decoders()
            known.pop(topic, None)
            chosen = list({topic: self.text("as"), **known}.items())[:DECODERS_MAX]
            text = "|".join(f"{decoder}/{quote(name, safe='', errors='replace')}"
                            for name, decoder in chosen if decoder in CHOICES)
            response.set_cookie(DECODERS_COOKIE, text, max_age=YEAR_S, httponly=True,
                                samesite="strict")

    def _decoders(self) -> dict[str, str]:
        """Topic -> decoder, as the cookie has them."""
        found = {}
        for one in self.request.cookies.get(DECODERS_COOKIE, "").split("|")[:DECODERS_MAX]:
            decoder, _, topic = one.partition("/")
            if decoder in CHOICES:
                found[unquote(topic)] = decoder
        return found

    # -- the query --------------------------------------------------------------------------------

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the URL. Raises BadParameterError."""
        value = self.request.query_params.get(name, default)
        if len(value) > TEXT_MAX:
            raise BadParameterError(f"{name}: expected at most {TEXT_MAX} characters")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number of the URL. Raises BadParameterError."""
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20
                and low <= int(text) <= high):
            raise BadParameterError(f"{name}: expected a number from {low} to {high}")
        return int(text)

    def needed(self, name: str) -> str:
        """A parameter that the URL must have. Raises BadParameterError."""
        value = self.text(name)
        if not value:
            raise BadParameterError(f"{name}: expected a value")
        return value

    # -- asking and answering ---------------------------------------------------------------------

    async def ask(self, command: click.Command, line: str = "", /, seconds: float = PAGE_S,
                  **options: Any) -> Answer:
        """The answer of a command; `line`: as one would type it."""
        return await ask(self.admin, command, line, seconds=seconds, **options)

    def listing(
        self, answer: Answer, number: int = 0, *, sort: str = "", **options: Any,
    ) -> Listing | None:
        """
        A table of an answer, filtered, sorted and cut as the URL says; None without it.

        sort   where the URL has none
        """
        if number >= len(answer.tables):
            return None
        return listed(answer.tables[number], text=self.text("q"), sort=self.text("sort", sort),
                      page=self.number("page", 1, 1, 1_000_000), **options)

    def url(self, path: str, **query: Any) -> str:
        """A URL of this cluster's pages."""
        return address(self.cluster.base + path, query)

    def again(self, **changed: Any) -> str:
        """The URL of this page with some parameters changed; None takes one away."""
        query = {**self.request.query_params, **changed}
        query.pop("lang", None) if "lang" not in changed else None
        return address(self.request.url.path, query)

    def render(
        self, template: str, title: str, answers: Mapping[str, Answer], *,
        status: HTTPStatus | None = None, **values: Any,
    ) -> Response:
        """The page, or with ?format=json the documents that it is made of."""
        first = next(iter(answers.values()), None)
        if status is None:
            status = HTTPStatus.OK if first is None or first.view is not None \
                else STATUS.get(first.status, HTTPStatus.BAD_GATEWAY)
        if self.text("format") == "json":
            shown = first.whole() if len(answers) == 1 and first is not None else {
                name: answer.whole() for name, answer in answers.items()}
            return JSONText(shown, status)
        text = rendering.html(template, self.language, page=self, site=self.site, title=title,
                              answers=answers, **answers, **values)
        response = Response(text.encode(errors="replace"), status, media_type="text/html")
        chosen = self.request.query_params.get("lang")
        if chosen in words.LANGUAGES:
            response.set_cookie(LANGUAGE_COOKIE, chosen, max_age=YEAR_S, samesite="strict")
        return response

    def trouble(self, status: HTTPStatus, text: str) -> Response:
        """A page that says only what is wrong."""
        return self.render("trouble.html", "Not shown", {"answer": Answer(None, text)},
                           status=status)

    def note(self, what: str, outcome: str) -> None:
        """A line of the audit about a change by this browser."""
        user = self.session.user if self.session else ""
        remote = self.request.client.host if self.request.client else ""
        self.site.trail.add(user, remote, what, outcome)

    def redirect(self, path: str, **query: Any) -> Response:
        """To another page of this cluster, by GET."""
        return RedirectResponse(self.url(path, **query), HTTPStatus.SEE_OTHER)


class JSONText(JSONResponse):
    """ASCII, several lines: half of a surrogate pair in a name breaks nothing."""

    def render(self, content: Any) -> bytes:
        """The bytes of a document."""
        return (json.dumps(content, ensure_ascii=True, indent=2, default=str) + "\n").encode()


def address(path: str, query: Mapping[str, Any]) -> str:
    """A URL of this server; None leaves a parameter out."""
    pairs = {name: value for name, value in query.items() if value is not None and value != ""}
    return path + (f"?{urlencode(pairs, errors='replace')}" if pairs else "")


Handler = Callable[[Page], Coroutine[Any, Any, Response]]
