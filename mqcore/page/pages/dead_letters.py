"""Dead letters: the groups that have some, and those of one group, to be sent again."""
from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response, StreamingResponse

from mqcore.admin.nouns import dlq as nouns
from mqcore.page.context import Page
from mqcore.page.pages.messages import place_of, topics_of
from mqcore.wire.codes import DLQ_PREFIX

LIMIT, LIMIT_MAX = 200, 10_000
FILTERS = ("since", "until", "key", "grep")
EXPORT_S = 300.0                       # a browser that reads slower gets a file that is cut


async def dead_letters(page: Page) -> Response:
    """Groups with dead letters, the most first."""
    answer = await page.ask(nouns.list_command, "mqcore dlq ls", cluster=None)
    listing = page.listing(answer, 0, sort="-messages", links={
        "name": lambda row: page.url("/dead-letters/group", name=row["name"])},
        flags={"messages": lambda row: "warn" if row["messages"] else ""})
    return page.render("dead_letters.html", "Dead letters", {"answer": answer}, listing=listing)


async def of_group(page: Page) -> Response:
    """The dead letters of one group."""
    name = page.needed("name")
    filters = {key: page.text(key) for key in FILTERS}
    limit = page.number("limit", LIMIT, 1, LIMIT_MAX)
    words = ["mqcore", "dlq", "show", name, "--limit", str(limit)]
    for key, value in filters.items():
        words += [f"--{key}", value] if value else []
    options: dict[str, Any] = {key: value or None for key, value in filters.items()}
    async with page.site.searches.place():
        answer = await page.ask(nouns.show_command, shlex.join(words), group=name, limit=limit,
                                **options)
    return page.render(
        "dead_letters_of_group.html", "Dead letters", {"answer": answer}, name=name,
        hidden=any(page.admin.hides(topics_of(one, DLQ_PREFIX + name))
                   for one in answer.document.get("messages", ())),
        filters=filters, limit=limit, more=bool(answer.document.get("more")),
        given={key: value for key, value in {**filters, "limit": limit}.items() if value},
        listing=page.listing(answer, 0, sortable=False, links={
            "stored": lambda row: page.url("/message", place=place_of(DLQ_PREFIX + name, row)),
            "originTopic": lambda row: page.url("/topic", name=row["originTopic"])
            if row["originTopic"] else ""}))


async def export(page: Page) -> Response:
    """A file with a line for each dead letter, as `mqcore message send --ndjson` reads it."""
    name = page.needed("name")
    documents = nouns.exported(page.admin, name, **{key: page.text(key) or None for key in FILTERS})
    async with page.site.searches.place():
        first = await anext(documents, None)   # an error so far is a page, later it cuts the file

    async def lines() -> AsyncIterator[bytes]:
        async with asyncio.timeout(EXPORT_S), aclosing(documents), page.site.exports.place():
            if first is not None:
                yield _line(page, first)
            async for document in documents:
                yield _line(page, document)

    return StreamingResponse(lines(), media_type="application/x-ndjson", headers={
        "Content-Disposition": 'attachment; filename="dead-letters.ndjson"'})


def _line(page: Page, document: dict[str, Any]) -> bytes:
    if page.admin.hides(topics_of(document, DLQ_PREFIX + document["group"])) and "body" in document:
        # under another name, so that a body with hidden fields is not sent by mistake
        document["maskedBody"] = document.pop("body")
    return json.dumps(document).encode() + b"\n"
