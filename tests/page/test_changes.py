"""Forms that change something: made of commands, previewed, confirmed, noted in the audit."""
from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import click
import pytest
from starlette.testclient import TestClient

from mqcore.client import Admin
from mqcore.page.changes import CHANGES, change, unsafe
from mqcore.page.context import Site
from tests.page.conftest import HOSTILE, World, client, site
from tests.page.html import Page
from tests.support.waiting import wait_until


@dataclass
class Writer:
    """A browser of a page that may change things."""

    browser: TestClient
    site: Site

    def preview(self, verb: str, **fields: object) -> Page:
        answer = self.browser.get("/change", params={"do": verb, "preview": 1, **fields})
        page = Page(answer.text)
        assert page.faults == []
        return page

    def begin_redrive(self, **fields: object) -> str:
        """The URL of a task that has begun."""
        token = self.preview("dlq-redrive", **fields).fields["token"]
        answer = self.browser.post("/change?do=dlq-redrive", data={
            **{name: str(value) for name, value in fields.items()}, "token": token,
            "typed": str(fields["group"])})
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def task(self, url: str) -> str:
        page = Page(self.browser.get(url).text)
        assert page.faults == []
        return page.text

    def make(self, verb: str, typed: str = "", **fields: object) -> tuple[int, str]:
        page = self.preview(verb, **fields)
        assert "token" in page.fields, page.text
        answer = self.browser.post(f"/change?do={verb}", data={
            **{name: str(value) for name, value in fields.items()},
            "token": page.fields["token"], "typed": typed})
        assert Page(answer.text).faults == []
        return answer.status_code, Page(answer.text).text


@pytest.fixture
def writer(world: World) -> Iterator[Writer]:
    of = site(world, write=True)
    with client(of) as browser:
        yield Writer(browser, of)


@pytest.mark.parametrize("verb", CHANGES)
def test_each_change_is_a_command_with_a_form(verb: str) -> None:
    found = change(verb)
    assert found is not None
    assert found.fields
    assert found.line[0] == "mqcore"
    needed = {field.name: "name" for field in found.fields if field.needed}
    assert all(name in found.as_typed(needed) or "name" in found.as_typed(needed)
               for name in needed)
    if needed:
        with pytest.raises(click.UsageError, match="expected a value"):
            found.options({})


def test_a_topic_is_created_changed_and_deleted(world: World, writer: Writer) -> None:
    status, text = writer.make("topic-create", topic="by-page", queues=3, perm="rw")
    assert (status, "created topic by-page" in text) == (200, True)
    status, text = writer.make("topic-edit", typed="by-page", topic="by-page", queues=5)
    assert (status, "read 3 -> 5" in text) == (200, True)
    status, text = writer.make("topic-rm", typed="by-pag", topic="by-page")
    assert (status, "type by-page to confirm" in text) == (400, True)
    with Admin(world.namesrv) as admin:
        assert "by-page" in admin.topics()
        status, text = writer.make("topic-rm", typed="by-page", topic="by-page")
        assert (status, "deleted topic by-page" in text) == (200, True)
        assert "by-page" not in admin.topics()
    lines = [(line.what, line.outcome) for line in reversed(writer.site.trail.lines)]
    assert lines == [
        ("mqcore topic create --queues 3 by-page", "done"),
        ("mqcore topic edit --queues 5 by-page", "done"),
        ("mqcore topic rm by-page", "done")]
    assert "mqcore topic rm by-page" in Page(writer.browser.get("/audit").text).text


def test_offsets_are_shown_before_they_move(world: World, writer: Writer) -> None:
    fields = {"group": "billing", "topic": "offsets", "aim": "end"}
    page = writer.preview("offset-reset", **fields)
    assert "+6" in page.text
    with Admin(world.namesrv) as admin:
        assert {one.consumer_offset for one in admin.lag("billing", "offsets").queues} == {4}
        assert writer.make("offset-reset", typed="billing", **fields)[0] == 200
        assert admin.lag("billing", "offsets").total == 0
        assert writer.make("offset-reset", typed="billing", **{**fields, "aim": "4"})[0] == 200


def test_dead_letters_are_sent_again_once(writer: Writer) -> None:
    fields = {"group": "billing", "to": "topic", "limit": 2}
    page = writer.preview("dlq-redrive", **fields)
    assert "send 2 dead letters of group billing to bills" in page.text
    assert page.fields["rate"] == "100"
    task = writer.begin_redrive(**fields)
    wait_until(lambda: "done" in writer.task(task), "the end of the task")
    shown = json.loads(writer.browser.get(f"{task}&format=json").text)
    assert (shown["sent"], shown["failed"], shown["letters"], shown["state"]) == (2, 0, 2, "done")
    wait_until(lambda: "2 are left out" in writer.preview("dlq-redrive", **fields).text,
               "the copies in the index")
    assert [(line.what, line.outcome) for line in reversed(writer.site.trail.lines)] == [
        ("mqcore dlq redrive --limit 2 --to topic billing", "begun"),
        ("mqcore dlq redrive --limit 2 --to topic billing", "done: 2 sent, 0 failed, 0 left out")]


def test_a_message_is_sent(world: World, writer: Writer) -> None:
    status, text = writer.make("message-send", topic="orders", body="<b>by hand</b>", tag="t",
                               keys="a b", pairs="colour=red")
    assert status == 200, text
    place = text.partition("id ")[2].split()[0]
    with Admin(world.namesrv) as admin:
        (found,) = admin.query("orders", place)
        assert found.text() == "<b>by hand</b>"
        assert (found.tags, found.keys, found.properties["colour"]) == ("t", ["a", "b"], "red")


@pytest.mark.parametrize(("verb", "fields"), [
    ("topic-create", {"topic": HOSTILE}), ("topic-create", {"topic": "x", "queues": "many"}),
    ("topic-create", {"topic": "x", "queues": "0"}),
    ("topic-create", {"topic": "x", "perm": "rwx"}),
    ("topic-rm", {"topic": "no-such-topic"}), ("group-edit", {"group": "billing"}),
    ("offset-reset", {"group": "billing", "topic": "offsets", "aim": "never"}),
    ("message-resend", {"message_id": "x"}), ("transaction-rollback", {"message_id": "x"}),
    ("dlq-redrive", {"group": "billing", "grep": "("}), ("broker-set", {"settings": "a"}),
    ("broker-set", {"settings": "'"}),
    ("message-send", {"topic": "orders", "body": "x", "pairs": "x"}),
])
def test_wrong_fields_are_a_sentence(writer: Writer, verb: str, fields: dict[str, str]) -> None:
    answer = writer.browser.get("/change", params={"do": verb, "preview": 1, **fields})
    page = Page(answer.text)
    assert answer.status_code in (400, 404)
    assert page.faults == []
    assert "token" not in page.fields
    assert "Not shown" in page.text


@pytest.mark.parametrize("setting", [
    "storePathRootDir=/tmp", "aclEnable=false", "rocketmqHome=/tmp/x;id", "log.file=/etc/passwd",
    "http.write=true", "tls.cert_file=x", "filterServerNums=1 storePathCommitLog=/x",
])
def test_settings_of_files_and_access_are_not_changed_from_a_browser(
        writer: Writer, setting: str) -> None:
    assert "from a browser" in unsafe("broker-set", {"settings": setting})
    page = writer.preview("broker-set", settings=setting)
    assert "token" not in page.fields


def test_forms_have_a_size_and_a_kind(world: World, writer: Writer) -> None:
    token = writer.preview("topic-create", topic="x").fields["token"]
    post = writer.browser.post
    assert post("/change?do=topic-create", json={"token": token}).status_code == 400
    assert post("/change?do=topic-create", data={
        "token": token, "topic": "x" * (7 << 20)}).status_code == 400
    assert post("/change?do=topic-create", data={
        "token": token, **{f"f{n}": "1" for n in range(200)}}).status_code == 400
    assert post("/change?do=topic-create", content=b"token=%FF\xff", headers={
        "Content-Type": "application/x-www-form-urlencoded"}).status_code in (400, 403)
    assert post("/change?do=nothing", data={"token": token}).status_code == 404
