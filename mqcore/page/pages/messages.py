"""Find messages, and read one: its properties, its body decoded, what groups did with it."""
from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import PlainTextResponse, Response

from mqcore.admin.nouns import message as nouns
from mqcore.admin.nouns.stored import ROWS, row_of
from mqcore.admin.shell import units
from mqcore.admin.shell.exits import Exit
from mqcore.admin.shell.view import Table
from mqcore.page.asking import Answer
from mqcore.page.context import Page
from mqcore.page.decoders import CHOICES
from mqcore.page.decoding import decoded
from mqcore.page.listing import listed
from mqcore.page.meanings import MEANINGS
from mqcore.wire.properties import REAL_TOPIC, RETRY_TOPIC

SINCE = "15m ago"
LIMIT, LIMIT_MAX = 100, 1_000
SHOWN = [column for column in ROWS if not column.wide]


def place_of(topic: str, document: Mapping[str, Any]) -> str:
    """
    Where a message is, as /message takes it.

    topic   of its queue: a message that comes again has the topic that it was sent to
    """
    return f"{topic}/{document['broker']}/{document['queueId']}/{document['queueOffset']}"


async def messages(page: Page) -> Response:
    """By time, tag, condition, text, key or id."""
    topic, which = page.text("topic").strip(), page.text("which").strip()
    limit = page.number("limit", LIMIT, 1, LIMIT_MAX)
    fields = {"topic": topic, "which": which, **{
        name: page.text(name) for name in ("until", "tag", "sql", "grep")},
        "since": page.text("since", SINCE if not which else "")}
    if which:
        answer = await page.ask(nouns.get_command, _line("get", which, {"-t": topic}),
                                which=which, topic=topic or None, with_groups=False, body_file=None)
        documents = answer.document.get("messages", ())
        if len(documents) == 1 and page.text("format") != "json":
            return page.redirect("/message", id=documents[0]["offsetMessageId"])
    elif topic:
        line = _line("find", "", {
            "-t": topic, "--since": fields["since"], "--until": fields["until"],
            "--tag": fields["tag"], "--sql": fields["sql"], "--grep": fields["grep"],
            "--limit": str(limit)})
        async with page.site.searches.place():
            answer = await page.ask(
                nouns.find_command, line, topic=topic, tags=fields["tag"] or None,
                sql=fields["sql"] or None, grep=fields["grep"] or None,
                since=fields["since"] or None, until=fields["until"] or None, limit=limit)
        documents = answer.document.get("messages", ())
    else:
        answer, documents = Answer(None, "", Exit.DONE), ()
    rows = [{**row_of(document), "stored_iso": units.iso_of(document["storeTimestamp"] / 1000)}
            for document in documents]

    def link(row: Mapping[str, Any]) -> str:
        return page.url("/message", id=row["offsetMessageId"]) if which else page.url(
            "/message", place=place_of(topic, row))

    found = None if answer.view is None else listed(
        Table(SHOWN, rows, "no messages"), page=page.number("page", 1, 1, 1_000_000),
        sort=page.text("sort"), links={"stored": link})
    return page.render("messages.html", "Messages", {"answer": answer}, fields=fields, found=found,
                       limit=limit, more=bool(answer.document.get("more")), rows=rows,
                       hidden=any(page.admin.hides(topics_of(one, topic)) for one in documents),
                       status=None if answer.error else HTTPStatus.OK)


def _line(verb: str, argument: str, options: Mapping[str, str]) -> str:
    words = ["mqcore", "message", verb, *([argument] if argument else [])]
    for name, value in options.items():
        words += [name, value] if value else []
    return shlex.join(words)


async def _one(page: Page, *, with_groups: bool = False) -> tuple[Answer, dict[str, Any]]:
    """The message of the URL."""
    which = page.text("place") or page.needed("id")
    if page.text("place") and nouns.PLACE.fullmatch(which) is None:
        return Answer(None, "place: expected TOPIC/BROKER/QUEUE/OFFSET", Exit.USAGE), {}
    answer = await page.ask(nouns.get_command, _line("get", which, {}), which=which, topic=None,
                            with_groups=with_groups, body_file=None)
    documents = answer.document.get("messages", ())
    return answer, dict(documents[0]) if documents else {}


def topics_of(document: Mapping[str, Any], stored: str = "") -> list[str]:
    """The topics that a message is of; stored: of its queue, where it is known."""
    properties = document.get("properties", {})
    return list(filter(None, (stored, document.get("topic"), properties.get(REAL_TOPIC),
                              properties.get(RETRY_TOPIC)))) or [""]


def body_of(document: Mapping[str, Any]) -> bytes:
    """The bytes of a document's body; none of one that cannot be decompressed."""
    if "body" in document:
        return str(document["body"]).encode()
    return base64.b64decode(document.get("bodyBase64", ""))


async def message(page: Page) -> Response:
    """One message whole."""
    answer, document = await _one(page)
    body, topic = body_of(document), str(document.get("topic", ""))
    chosen = page.decoder(topic)
    hidden = page.admin.hides(topics_of(document, page.text("place").partition("/")[0]))
    response = page.render(
        "message.html", "Message", {"answer": answer}, document=document,
        which={name: page.text(name) for name in ("place", "id")}, size=len(body),
        choices=CHOICES, chosen=chosen,
        hidden=hidden,
        found=await decoded(body, chosen, None if hidden else page.site.schemas.get(topic)),
        broken=document.get("brokenBody", ""),
        properties=[(name, value, MEANINGS.get(name, ""))
                    for name, value in sorted(document.get("properties", {}).items())])
    page.remember_decoder(response, topic)
    return response


async def groups(page: Page) -> Response:
    """The part of the page about groups; it comes later, since it asks their members."""
    answer, document = await _one(page, with_groups=True)
    return page.render("message_groups.html", "Groups", {"answer": answer},
                       rows=document.get("groups", ()))


async def body(page: Page) -> Response:
    """The body as a file to keep: no browser shows or runs it."""
    answer, document = await _one(page)
    if answer.view is None:
        return PlainTextResponse(answer.error + "\n", HTTPStatus.NOT_FOUND)
    if "brokenBody" in document:
        return PlainTextResponse(document["brokenBody"] + "\n", HTTPStatus.BAD_GATEWAY)
    return Response(body_of(document), media_type="application/octet-stream", headers={
        "Content-Disposition": 'attachment; filename="message.bin"'})
