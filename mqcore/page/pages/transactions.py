"""Half messages that no producer has committed or rolled back."""
from __future__ import annotations

import shlex

from starlette.responses import Response

from mqcore.admin.nouns import transaction as nouns
from mqcore.admin.shell.view import Facts
from mqcore.page.context import BadParameterError, Page
from mqcore.wire.ids import parse_offset_message_id

LIMIT, LIMIT_MAX = 200, 10_000


async def transactions(page: Page) -> Response:
    """All that are undecided, the oldest first."""
    limit = page.number("limit", LIMIT, 1, LIMIT_MAX)
    answer = await page.ask(nouns.list_command, f"mqcore transaction ls --limit {limit}",
                            broker=None, limit=limit)
    return page.render(
        "transactions.html", "Transactions", {"answer": answer},
        more=bool(answer.document.get("more")), figures=page.listing(answer, 1, sortable=False),
        listing=page.listing(answer, 0, name="producerGroup", links={
            "id": lambda row: page.url("/transaction", id=row["id"]),
            "topic": lambda row: page.url("/topic", name=row["topic"]) if row["topic"] else ""}))


async def transaction(page: Page) -> Response:
    """One half message whole."""
    name = page.needed("id")
    try:
        parse_offset_message_id(name)
    except ValueError as error:
        raise BadParameterError(str(error)) from error
    answer = await page.ask(nouns.show_command, f"mqcore transaction show {shlex.quote(name)}",
                            broker=None, message_id=name)
    pairs = [pair for part in (answer.view.parts if answer.view else ())
             if isinstance(part, Facts) for pair in part.pairs]
    return page.render("transaction.html", "Transaction", {"answer": answer}, id=name, pairs=pairs,
                       pending=answer.document.get("state") == "pending")
