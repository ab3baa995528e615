"""Consumer groups, and one group: lag, members and their subscriptions, queues with owners."""
from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from mqcore.admin.nouns import group as nouns
from mqcore.page.context import Page

LAG_WARNING, LAG_CRITICAL = 10_000, 100_000            # as `mqcore check lag` has them


async def groups(page: Page) -> Response:
    """All groups with their lag, the largest first."""
    every = page.text("kind") == "all"
    answer = await page.ask(nouns.list_command, "mqcore group ls" + (" --all" if every else ""),
                            every=every, with_members=False, cluster=None)
    listing = page.listing(answer, 0, sort="-lag", links={
        "name": lambda row: page.url("/group", name=row["name"])}, flags={"lag": _lag_flag})
    return page.render("groups.html", "Groups", {"answer": answer}, listing=listing, every=every)


def _lag_flag(row: Mapping[str, Any]) -> str:
    lag = row["lag"] or 0
    return "bad" if lag >= LAG_CRITICAL else "warn" if lag >= LAG_WARNING else ""


async def group(page: Page) -> Response:
    """One group."""
    name = page.needed("name")
    answer = await page.ask(nouns.show_command, f"mqcore group show {shlex.quote(name)}",
                            group=name)
    members = answer.document.get("members", ())
    topics = sorted({row["topic"] for row in answer.document.get("queues", ())})
    return page.render(
        "group.html", "Group", {"answer": answer}, name=name, topics=topics,
        behind=max((row["behindSeconds"] for row in answer.document.get("queues", ())
                    if row["behindSeconds"] is not None), default=None),
        paused=any(not one["consumeEnable"] for one in answer.document.get("brokers", ())),
        compared=compared(members),
        members=page.listing(answer, 0, sortable=False, links={
            "clientId": lambda row: page.url("/client", group=name, id=row["clientId"])},
            flags={"subscriptions": _odd(members)}),
        queues=page.listing(answer, 1, name="topic", links={
            "topic": lambda row: page.url("/topic", name=row["topic"]),
            "consumerOffset": lambda row: page.url("/message", place="{topic}/{broker}/{queueId}/"
                                                   "{consumerOffset}".format(**row))
            if row["lag"] > 0 else "",
            "owner": lambda row: page.url("/client", group=name, id=row["owner"])
            if row["owner"] else ""}, flags={
            "lag": _lag_flag,
            "owner": lambda row: "" if row["owner"] or not members else "warn"}))


def _common(members: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The subscriptions that most members have."""
    found = Counter(tuple(sorted(one["subscriptions"])) for one in members)
    return found.most_common(1)[0][0] if found else ()


def _odd(members: Sequence[Mapping[str, Any]]) -> Any:
    common = _common(members)
    return lambda row: "bad" if tuple(sorted(row["subscriptions"])) != common else ""


def compared(members: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """
    Where subscriptions differ: for each such topic its expressions, and their members.

    Members of a group must subscribe to the same: a broker keeps one subscription a topic, so that
    messages go to members that filter them away.
    """
    by_topic: dict[str, dict[str, list[str]]] = {}
    for one in members:
        for subscription in one["subscriptions"]:
            topic, _, expression = subscription.partition(" ")
            by_topic.setdefault(topic, {}).setdefault(expression, []).append(one["clientId"])
    rows: list[dict[str, Any]] = []
    for topic, expressions in sorted(by_topic.items()):
        having = {client for clients in expressions.values() for client in clients}
        without = [one["clientId"] for one in members if one["clientId"] not in having]
        if len(expressions) > 1 or without:
            rows += [{"topic": topic, "expression": expression, "members": clients}
                     for expression, clients in sorted(expressions.items())]
            if without:
                rows.append({"topic": topic, "expression": None, "members": without})
    return rows
