"""Follow a topic: new messages, by server-sent events."""
from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus

from starlette.responses import Response, StreamingResponse

from mqcore.admin.nouns.stored import document_of, row_of
from mqcore.admin.shell.exits import Exit
from mqcore.page import rendering
from mqcore.page.asking import ERRORS, Answer, text_of
from mqcore.page.context import Page
from mqcore.page.pages.messages import place_of
from mqcore.page.tailing import LIFE_S, READERS_MAX, Round, TooManyReadersError, Wanted

FIELDS = ("topic", "tag", "sql", "key", "grep")
KEEP_S = 5.0                           # a line at least so often: it shows that a browser has left
END = b"event: end\ndata: \n\n"


def _wanted(page: Page) -> Wanted:
    topic, tags, sql, key, grep = (page.text(name).strip() for name in FIELDS)
    return Wanted(topic, tags, sql, key, grep)


async def tail(page: Page) -> Response:
    """The form, and a table that fills itself."""
    wanted = _wanted(page)
    words = ["mqcore", "message", "tail", "-t", wanted.topic]
    for name, value in (("--tag", wanted.tags), ("--sql", wanted.sql), ("--grep", wanted.grep)):
        words += [name, value] if value else []
    answer = Answer(command=shlex.join(words) if wanted.topic else "")
    if wanted.tags and wanted.sql:
        answer = Answer(None, "give a tag or a condition, not both", Exit.USAGE)
    return page.render(
        "tail.html", "Follow a topic", {"answer": answer},
        fields={name: page.text(name) for name in FIELDS},
        status=None if answer.error else HTTPStatus.OK,
        hidden=bool(wanted.topic) and page.admin.hides([wanted.topic]),
        events="" if answer.error or not wanted.topic else page.url(
            "/tail/events", **{name: page.text(name) for name in FIELDS}))


async def events(page: Page) -> Response:
    """Server-sent events of `tail`: rows, and a line about what is left out."""
    page.needed("topic")
    return StreamingResponse(_events(page), media_type="text/event-stream")


async def _events(page: Page) -> AsyncIterator[bytes]:
    left_out = shown = 0
    said = ""
    try:
        async with aclosing(_rounds(page)) as rounds:
            async for one in rounds:
                left_out += 0 if one is None else one.left_out
                shown += 0 if one is None else len(one.messages)
                state = rendering.html("tail_state.html", page.language, page=page, shown=shown,
                                       left_out=left_out, missing=one.missing if one else (),
                                       error="")
                if one is None or (not one.messages and state == said):
                    yield b":\n\n"
                    continue
                said = state
                yield _event(page, one, state)
        error = f"ended after {LIFE_S / 60:g} minutes: load the page again"
    except TooManyReadersError:
        error = f"{READERS_MAX} others follow topics: try again later"
    except (*ERRORS, TimeoutError, ValueError) as failure:
        error = text_of(failure)
    yield _event(page, Round(), rendering.html(
        "tail_state.html", page.language, page=page, shown=shown, left_out=left_out, missing=(),
        error=error)) + END


async def _rounds(page: Page) -> AsyncGenerator[Round | None]:
    """Rounds; None after KEEP_S without one."""
    async with aclosing(page.site.readers.follow(page.admin, _wanted(page))) as rounds:
        pending: asyncio.Task[Round] | None = None
        try:
            while True:
                pending = pending or asyncio.ensure_future(anext(rounds))
                done, _ = await asyncio.wait((pending,), timeout=KEEP_S)
                if not done:
                    yield None
                    continue
                try:
                    found = pending.result()
                except StopAsyncIteration:
                    return
                finally:
                    pending = None
                yield found
        finally:
            if pending is not None:
                pending.cancel()
                await asyncio.gather(pending, return_exceptions=True)


def _event(page: Page, one: Round, state: str) -> bytes:
    topic = page.text("topic")
    rows = [row_of(document_of(message)) for message in reversed(one.messages)]
    text = rendering.html("tail_rows.html", page.language, page=page, rows=rows,
                          link=lambda row: page.url("/message", place=place_of(topic, row)))
    text += ('<hx-partial hx-target="#tail-state" hx-swap="innerHTML">'
             f"{state}</hx-partial>")
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"{lines}\n".encode(errors="replace")
