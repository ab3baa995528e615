"""Dead letters: the groups that have some, and those of one group, to be sent again."""
from __future__ import annotations

import shlex
from typing import Any

from starlette.responses import Response

from mqcore.admin.nouns import dlq as nouns
from mqcore.page.context import Page
from mqcore.page.pages.messages import place_of
from mqcore.wire.codes import DLQ_PREFIX

LIMIT, LIMIT_MAX = 200, 10_000


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
    filters = {key: page.text(key) for key in ("since", "until", "key", "grep")}
    limit = page.number("limit", LIMIT, 1, LIMIT_MAX)
    words = ["mqcore", "dlq", "show", name, "--limit", str(limit)]
    for key, value in filters.items():
        words += [f"--{key}", value] if value else []
    options: dict[str, Any] = {key: value or None for key, value in filters.items()}
    answer = await page.ask(nouns.show_command, shlex.join(words), group=name, limit=limit,
                            **options)
    return page.render(
        "dead_letters_of_group.html", "Dead letters", {"answer": answer}, name=name,
        filters=filters, limit=limit, more=bool(answer.document.get("more")),
        given={key: value for key, value in {**filters, "limit": limit}.items() if value},
        listing=page.listing(answer, 0, sortable=False, links={
            "stored": lambda row: page.url("/message", place=place_of(DLQ_PREFIX + name, row)),
            "originTopic": lambda row: page.url("/topic", name=row["originTopic"])
            if row["originTopic"] else ""}))
