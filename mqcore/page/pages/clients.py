"""Connected clients, and a single one: its own report, its threads."""
from __future__ import annotations

import shlex

from starlette.responses import Response

from mqcore.admin.nouns import client as nouns
from mqcore.admin.nouns import group as group_nouns
from mqcore.page.context import Page

KINDS = ("producer", "consumer")


async def clients(page: Page) -> Response:
    """All that are connected: one request a group, some at a time."""
    kind = page.text("kind")
    kind = kind if kind in KINDS else ""
    answer = await page.ask(
        nouns.list_command, "mqcore client ls" + (f" --{kind}s" if kind else ""),
        kind=kind or None, group=None, cluster=None)
    listing = page.listing(answer, 0, name="clientId", links={
        "group": lambda row: page.url("/group", name=row["group"])
        if row["kind"] == "consumer" else "",
        "clientId": lambda row: page.url("/client", group=row["group"], id=row["clientId"])
        if row["kind"] == "consumer" else ""})
    return page.render("clients.html", "Clients", {"answer": answer}, kind=kind, listing=listing)


async def client(page: Page) -> Response:
    """One member of a group: settings and thread stacks that it reports (307)."""
    group, name = page.needed("group"), page.needed("id")
    answer = await page.ask(group_nouns.stack_command,
                            shlex.join(["mqcore", "group", "stack", group, name]),
                            group=group, member=name)
    members = answer.document.get("members", ())
    return page.render("client.html", "Client", {"answer": answer}, group=group, id=name,
                       info=members[0] if members else None)
