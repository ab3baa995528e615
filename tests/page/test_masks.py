"""Masks: what they hide, of whom, and every way around them."""
from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgpack
import pytest
import zstandard
from starlette.testclient import TestClient

from mqcore.broker.settings.masks import Mask, all_parsed, parsed, steps_of
from mqcore.client import (
    Admin,
    LocalTransactionState,
    Message,
    Producer,
    PushConsumer,
    Reject,
    SendResult,
    TransactionProducer,
)
from mqcore.page import masking
from mqcore.page.asking import Cluster
from mqcore.page.audit import Trail
from mqcore.page.context import Site
from mqcore.page.masking import Masks
from mqcore.page.masking_child import masked_body, masked_properties
from mqcore.page.users import Users, line_of
from tests.page.conftest import World, client
from tests.page.html import Page
from tests.support.waiting import wait_until

# -- lines and paths ------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [
    "", "orders", "orders=", "orders=json", "orders=json:", "orders=json:card", "=json:$.a",
    "orders=json:$.", "orders=json:$..", "orders=json:$.a[", "orders=json:$a", "orders=text:(",
    "orders=property:UNIQ_KEY", "orders=property:REAL_TOPIC", "orders=body:x", "a b=text:x",
    "a*b*c*d*e=text:x", "orders=text:" + "x" * 3_000,
])
def test_a_line_that_is_no_mask_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"expected|RocketMQ's own|no regular expression"):
        parsed(line)


def test_a_topic_has_stars() -> None:
    assert parsed("pay*=text:x").fits("payments")
    assert parsed("*=text:x").fits("any.thing\n")
    assert parsed("%RETRY%*=text:x").fits("%RETRY%g")
    assert not parsed("pay=text:x").fits("payments")
    assert not parsed("p.y=text:x").fits("pay")
    assert parsed("o=text:a=b:c") == Mask("o", "text", "a=b:c")


@pytest.mark.parametrize(("path", "body", "shown"), [
    ("$.card", {"card": 1, "b": 2}, {"card": "***", "b": 2}),
    ("$.card", {"card": {"number": 1}}, {"card": "***"}),
    ("$.card.number", {"card": {"number": 1, "type": "v"}}, {"card": {"number": "***",
                                                                     "type": "v"}}),
    ("$.l[*].p", {"l": [{"p": 1}, {"p": 2, "q": 3}]}, {"l": [{"p": "***"}, {"p": "***", "q": 3}]}),
    ("$.l[1]", {"l": [1, 2]}, {"l": [1, "***"]}), ("$.*", {"a": 1, "b": [2]},
                                                   {"a": "***", "b": "***"}),
    ("$..p", {"p": 1, "a": [{"p": {"p": 1}}]}, {"p": "***", "a": [{"p": "***"}]}),
    ("$['a b'].c", {"a b": {"c": 1}}, {"a b": {"c": "***"}}), ("$", {"a": 1}, "***"),
    ("$.absent.x", {"a": 1}, {"a": 1}), ("$.a..p", {"a": {"b": {"p": 1}}, "p": 2},
                                         {"a": {"b": {"p": "***"}}, "p": 2}),
])
def test_a_path_hides_what_it_leads_to(path: str, body: Any, shown: Any) -> None:
    text = masked_body(json.dumps(body).encode(), [Mask("t", "json", path)])
    assert isinstance(text, str)
    assert json.loads(text) == shown


SECRET = "4111111111111111"
CARD = {"card": {"number": SECRET}, "id": 7}
PATHS = [Mask("t", "json", "$.card.number")]
TEXTS = [Mask("t", "text", r"\d{13,16}")]


@pytest.mark.parametrize("body", [
    json.dumps(CARD).encode(), gzip.compress(json.dumps(CARD).encode(), mtime=0),
    zstandard.compress(gzip.compress(json.dumps(CARD).encode(), mtime=0)), msgpack.packb(CARD),
    b'{"card": {"number": 1, "number": ' + SECRET.encode() + b"}}",
    json.dumps(CARD).replace("4", "\\u0034").encode(),
    json.dumps(CARD).encode() + b" " * (1 << 20), json.dumps(CARD).encode("utf-16"),
    json.dumps(CARD).encode() * 2, b"number=" + SECRET.encode(), SECRET.encode(),
    b"[" * 3_000 + SECRET.encode(), b"\x12\x10" + SECRET.encode(), b"\xff" + SECRET.encode(),
    gzip.compress(b" " * (2 << 20) + json.dumps(CARD).encode(), mtime=0),
    b"\xac\xed" + SECRET.encode(),
    json.dumps({"card": {"number": {SECRET: [SECRET]}}}).encode(),
], ids=lambda body: f"{body[:6]!r}-{len(body)}")
def test_no_kind_of_body_shows_what_is_hidden(body: bytes) -> None:
    for masks in (PATHS, TEXTS, [*PATHS, *TEXTS]):
        shown = masked_body(body, masks)
        assert shown is not None
        assert shown is False or SECRET not in str(shown)


def test_texts_are_hidden_in_names_numbers_and_across_signs() -> None:
    body = json.dumps({SECRET: int(SECRET), "a": f'"{SECRET}"\n'}).encode()
    assert SECRET not in str(masked_body(body, TEXTS))
    assert masked_body(b"card " + SECRET.encode() + b" of ann", TEXTS) == "card *** of ann"
    assert masked_body(b'{"cvv": "123"}', [Mask("t", "text", '"cvv": "[0-9]+"')]) == "{\n  ***\n}"
    assert masked_body(b"x", [Mask("t", "property", "a")]) is None


def test_properties_are_hidden_by_name_and_text() -> None:
    properties = {"customer": "ann", "note": SECRET, "UNIQ_KEY": SECRET, "KEYS": SECRET,
                  "TAGS": "t"}
    assert masked_properties(properties, [Mask("t", "property", "customer"), *TEXTS],
                             whole=False) == {
        "customer": "***", "note": "***", "UNIQ_KEY": SECRET, "KEYS": "***", "TAGS": "t"}


def test_an_expression_without_an_end_hides_all() -> None:
    masks = Masks((Mask("*", "text", "(a+)+$"),))
    asked = [(["t"], {"name": "value", "WAIT": "true"}, b"a" * 60 + b"b")] * 3
    found = asyncio.run(masks.applied(asked))
    for one in found:
        assert one is not None
        assert one[0] == {"name": "***", "WAIT": "true"}
        assert one[1].startswith(b"<61 bytes are hidden")


def test_one_process_masks_many_messages() -> None:
    masks = Masks((Mask("t", "json", "$.n"),))
    asked = [(["t" if number % 2 else "u"], {}, b'{"n": %d}' % number) for number in range(100)]
    found = asyncio.run(masks.applied(asked))
    assert [None if one is None else one[1] for one in found] == [
        b'{\n  "n": "***"\n}' if number % 2 else None for number in range(100)]


# -- in a cluster ---------------------------------------------------------------------------------

LINES = ("vault=json:$.card", "vault=property:customer", "vault=property:KEYS",
         r"notes=text:hidden-\w+")
BODY = {"card": "secret-card", "id": 7}
CUSTOMER, KEY, NOTE = "secret-customer", "secret-key", "hidden-word"
SECRETS = ("secret-", "hidden-")


@dataclass
class Vault:
    """Messages with fields that are hidden from all but ann."""

    world: World
    sent: SendResult
    note: SendResult
    half: str

    @property
    def place(self) -> str:
        queue = self.sent.queue
        return f"vault/{queue.broker_name}/{queue.queue_id}/{self.sent.queue_offset}"


def _rejected(_message: object) -> None:
    raise Reject("it is to become a dead letter")


@pytest.fixture(scope="module")
def vault(world: World) -> Iterator[Vault]:
    namesrv = world.namesrv
    with Admin(namesrv) as admin:
        for topic in ("vault", "notes"):
            admin.create_topic(topic, queues=1)
        admin.create_group("keepers")
        with Producer("masks", namesrv=namesrv, trace=True) as producer:
            sent = producer.send(Message("vault", json.dumps(BODY), keys=KEY,
                                         properties={"customer": CUSTOMER}))
            note = producer.send(Message("notes", f"a {NOTE}", keys=NOTE, tags=NOTE,
                                         properties={"n": NOTE}))
            producer.send(Message("vault", json.dumps(BODY), keys=KEY, delay_level=18,
                                  properties={"customer": CUSTOMER}))
        with PushConsumer("keepers", "vault", _rejected, namesrv=namesrv, start="earliest"):
            wait_until(lambda: len(admin.dead_letters("keepers")) == 1
                       if "%DLQ%keepers" in admin.topics() else False, "a dead letter")
        half = Message("vault", json.dumps(BODY), keys=KEY, properties={"customer": CUSTOMER})
        with TransactionProducer("halves", namesrv=namesrv, check=lambda _: (
                LocalTransactionState.UNKNOWN)) as halves, pytest.raises(KeyError), \
                halves.transaction(half):
            raise KeyError

        def halves_of_vault() -> list[str]:
            return [one.message_id for one in admin.pending_transactions(world.broker.broker_addr)
                    if one.topic == "vault"]

        wait_until(halves_of_vault, "the half message")
        yield Vault(world, sent, note, halves_of_vault()[0])


PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def users() -> tuple[str, ...]:
    return tuple(line_of(name, PASSWORD) for name in ("ann", "bob"))


@contextmanager
def browser_of(vault: Vault, users: tuple[str, ...], name: str) -> Iterator[TestClient]:
    site = Site([Cluster(vault.world.namesrv)], Users(time.monotonic, users), Trail(), True,
                masks=Masks(all_parsed(LINES)), unmasked=frozenset({"ann"}))
    with client(site) as browser:
        assert browser.post("/login", data={"name": name, "password": PASSWORD}).status_code == 303
        yield browser


@pytest.fixture(scope="module")
def bob(vault: Vault, users: tuple[str, ...]) -> Iterator[TestClient]:
    with browser_of(vault, users, "bob") as browser:
        yield browser


def shows_secret(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def paths(vault: Vault) -> list[str]:
    note = vault.note.queue
    return [
        f"/message?place={quote(vault.place)}", f"/message?place={quote(vault.place)}&as=hex",
        f"/message?id={vault.sent.offset_message_id}", f"/message/body?place={quote(vault.place)}",
        f"/message/groups?place={quote(vault.place)}",
        f"/message?place=notes/{note.broker_name}/0/0", f"/messages?which={vault.sent.message_id}"
        "&topic=vault", "/messages?topic=vault&since=1d+ago", "/messages?topic=notes&since=1d+ago",
        "/messages?topic=%25DLQ%25keepers&since=1d+ago",
        "/messages?topic=RMQ_SYS_TRACE_TOPIC&since=1d+ago",
        "/messages?topic=RMQ_SYS_TRANS_HALF_TOPIC&since=1d+ago",
        "/messages?topic=SCHEDULE_TOPIC_XXXX&since=1d+ago", "/dead-letters/group?name=keepers",
        "/dead-letters/export?name=keepers", f"/transaction?id={vault.half}",
        f"/transaction?id={vault.sent.offset_message_id}", f"/message?id={vault.half}",
        "/transactions", f"/trace?id={vault.sent.message_id}", f"/trace?id={vault.note.message_id}",
        f"/change?do=message-resend&message_id={vault.sent.offset_message_id}&preview=1",
        "/change?do=dlq-redrive&group=keepers&preview=1",
        f"/change?do=transaction-rollback&message_id={vault.half}&preview=1",
    ]


def test_no_page_shows_what_is_hidden(vault: Vault, bob: TestClient) -> None:
    found = {}
    for path in paths(vault):
        for wanted in (path, f"{path}{'&' if '?' in path else '?'}format=json"):
            answer = bob.get(wanted, follow_redirects=True)
            # a half message that was asked about meanwhile stands elsewhere, and is not pending
            assert answer.status_code == 200 or "not pending" in answer.text, (wanted, answer.text)
            if shows_secret(answer.text):
                found[wanted] = answer.text
    assert found == {}


def test_who_may_sees_all(vault: Vault, users: tuple[str, ...]) -> None:
    with browser_of(vault, users, "ann") as ann:
        for path in paths(vault)[:1]:
            assert "Some fields are hidden" not in ann.get(path).text
        text = Page(ann.get(paths(vault)[0]).text).text
        assert [one for one in ("secret-card", CUSTOMER, KEY) if one not in text] == []
        found = ann.get(f"/messages?topic=vault&which={KEY}&format=json").json()
        assert found["messages"]


def test_a_masked_message_says_so(vault: Vault, bob: TestClient) -> None:
    page = Page(bob.get(paths(vault)[0]).text)
    assert "Some fields are hidden from you." in page.text
    assert '"id": 7' in page.text
    assert page.faults == []
    line = json.loads(bob.get("/dead-letters/export?name=keepers").text)
    assert "body" not in line
    assert json.loads(line["maskedBody"]) == {"card": "***", "id": 7}


@pytest.mark.parametrize("query", [
    f"topic=vault&which={KEY}", "topic=vault&which=absent", f"topic=notes&which={NOTE}",
    "topic=vault&since=1d+ago&sql=customer+=+'secret-customer'",
    "topic=vault&since=1d+ago&sql=customer+IS+NULL", "topic=notes&since=1d+ago&sql=n+=+'x'",
    f"topic=notes&since=1d+ago&tag={NOTE}", "topic=%25DLQ%25keepers&sql=customer+IS+NULL",
    "topic=RMQ_SYS_TRACE_TOPIC&which=secret-key",
])
def test_a_search_of_what_is_hidden_is_refused(bob: TestClient, query: str) -> None:
    """The same for a guess that is right and one that is wrong."""
    answer = bob.get(f"/messages?{query}&format=json")
    assert answer.status_code == 403, answer.text
    assert "hidden from you" in answer.text


@pytest.mark.parametrize(("query", "count"), [
    ("topic=vault&grep=secret", 0), ("topic=vault&grep=secret-.ard", 0), ("topic=vault&grep=id", 1),
    ("topic=notes&grep=hidden", 0), ("topic=vault&sql=amount+IS+NULL", 1),
    ("topic=notes&tag=other", 0),
])
def test_a_search_sees_what_its_user_sees(bob: TestClient, query: str, count: int) -> None:
    answer = bob.get(f"/messages?{query}&since=1d+ago&format=json")
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["messages"]) == count


def test_dead_letters_are_not_found_by_what_is_hidden(bob: TestClient) -> None:
    for query, count in ((f"key={KEY}", 0), ("grep=secret", 0), ("grep=id", 1)):
        found = bob.get(f"/dead-letters/group?name=keepers&{query}&format=json").json()
        assert len(found["messages"]) == count, query


def test_what_is_sent_again_is_whole(vault: Vault, bob: TestClient) -> None:
    path = f"/change?do=message-resend&message_id={vault.sent.offset_message_id}&preview=1"
    token = Page(bob.get(path).text).fields["token"]
    answer = bob.post("/change?do=message-resend", data={
        "token": token, "message_id": vault.sent.offset_message_id})
    assert answer.status_code == 200, answer.text
    assert not shows_secret(answer.text)
    with Admin(vault.world.namesrv) as admin:
        copies = admin.query("vault", KEY)
        assert len({one.body for one in copies}) == 1
        assert {one.properties["customer"] for one in copies} == {CUSTOMER}
        assert len(copies) >= 2


def test_masks_cost_nothing_where_they_are_not(
        vault: Vault, bob: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "Limited", None)       # what would start a process
    assert bob.get("/messages?topic=orders&since=1d+ago").status_code == 200
    assert steps_of("$") == ()
