"""Every page against a real broker: it parses, runs nothing of its data, and is JSON as well."""
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from mqcore.admin.nouns import dlq
from mqcore.client import Admin
from mqcore.client.network.connection import Connection
from mqcore.page.app import PAGES
from mqcore.page.changes import CHANGES
from mqcore.wire.command import Command
from tests.page.conftest import BODY, DEAD, HOSTILE, World, client, site
from tests.page.html import Page

NAME = quote(HOSTILE, safe="")
PARTS = {"/live", "/tail/events", "/history", "/find", "/message/body", "/message/groups",
         "/dead-letters/export"}
QUERIES = {
    "/topic": ["name=orders", f"name={NAME}"], "/group": ["name=billing", f"name={NAME}"],
    "/messages": ["", "topic=orders&since=1d+ago", f"topic={NAME}", f"which={NAME}",
                  "topic=orders&sql=a+%3E+1&since=1d+ago", f"topic=orders&grep={NAME}"],
    "/tail": ["", "topic=orders", f"topic={NAME}&grep={NAME}", "topic=orders&tag=a&sql=b"],
    "/message": ["place={place}", f"place={NAME}", "id={id}", f"id={NAME}"],
    "/dead-letters/group": ["name=billing", f"name={NAME}"],
    "/transaction": [f"id={NAME}", "id=" + "0" * 32], "/trace": ["", f"id={NAME}"],
    "/client": [f"group={NAME}&id={NAME}"], "/settings": ["", f"broker={NAME}"],
    "/topics": ["kind=all", f"q={NAME}", "sort=-readQueues", "page=99", f"kind={NAME}"],
    "/groups": ["kind=all", "q=bil", f"sort={NAME}"], "/clients": ["", "kind=producer"],
    "/change": [*(f"do={verb}" for verb in CHANGES), f"do=topic-create&topic={NAME}&preview=1",
                f"do=offset-reset&group=billing&topic=offsets&aim={NAME}&preview=1",
                "do=offset-reset&group=billing&topic=offsets&aim=end&preview=1"],
}
CASES = [(path, query) for path in PAGES if path not in PARTS for query in QUERIES.get(path, [""])]


def url(world: World, path: str, query: str) -> str:
    return f"{path}?{query.format(place=quote(world.place), id=world.message_id)}"


@pytest.mark.parametrize(("path", "query"), CASES)
def test_a_page_parses_and_runs_nothing(
        world: World, reader: TestClient, path: str, query: str) -> None:
    answer = reader.get(url(world, path, query))
    assert answer.status_code < 500 or answer.status_code in (502, 504), answer.text
    if answer.status_code == 303:
        assert answer.headers["location"].startswith("/message?id=")
        return
    assert "in the page, logged" not in answer.text
    page = Page(answer.text)
    assert page.faults == []
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("path", "query"), CASES)
def test_a_page_is_json_as_well(
        world: World, reader: TestClient, path: str, query: str) -> None:
    answer = reader.get(url(world, path, query) + "&format=json")
    assert answer.headers["content-type"] == "application/json"
    assert isinstance(json.loads(answer.text), dict)


def test_the_overview_begins_with_dead_letters(reader: TestClient) -> None:
    text = Page(reader.get("/").text).text
    assert f"{DEAD} dead letters" in text
    assert text.index("dead letters") < text.index("Messages a second")


def test_a_message_is_shown_whole(world: World, reader: TestClient) -> None:
    answer = reader.get(f"/message?place={quote(world.place)}")
    page = Page(answer.text)
    assert BODY.split()[0] in page.text
    assert "<u>name</u>" in page.text
    assert "what its sender gave to filter by" in page.text
    hexed = Page(reader.get(f"/message?place={quote(world.place)}&as=hex").text)
    assert "3c 73 63 72 69 70 74" in hexed.text
    groups = Page(reader.get(f"/message/groups?place={quote(world.place)}").text)
    assert groups.faults == []
    assert "NOT_ONLINE" in groups.text


def test_a_decoder_is_remembered_for_its_topic(world: World) -> None:
    def shown(browser: TestClient, query: str = "") -> bool:
        text = Page(browser.get(f"/message?place={quote(world.place)}{query}").text).text
        return "3c 73 63 72 69 70 74" in text

    with client(site(world)) as browser:
        assert not shown(browser)
        assert shown(browser, "&as=hex")
        assert shown(browser)
        browser.cookies.set("mqcore_decoders", "|".join(["hex/other", "nonsense/orders", "/", ""]))
        assert not shown(browser)
        assert not shown(browser, f"&as={NAME}")


def test_a_body_is_only_downloaded(world: World, reader: TestClient) -> None:
    answer = reader.get(f"/message/body?place={quote(world.place)}")
    assert answer.text == BODY
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


def test_clients_cost_one_request_a_group(
        world: World, reader: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(self: Connection, request: Command, *, timeout: float = 3.0,
                invoke: Any = Connection.invoke) -> Any:
        asked.append(int(request.code))
        return invoke(self, request, timeout=timeout)

    with Admin(world.namesrv) as admin:
        groups = len({one.config.name for one in admin.groups_on_brokers()})
    monkeypatch.setattr(Connection, "invoke", counted)
    assert reader.get("/clients?kind=consumer").status_code == 200
    assert asked.count(203) == groups >= 2
    assert asked.count(105) == 0            # no look-up of a topic's brokers for each group


def test_dead_letters_are_exported_as_lines(
        reader: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def bodies(query: str = "") -> list[str]:
        answer = reader.get(f"/dead-letters/export?name=billing{query}")
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert answer.headers["content-disposition"].startswith("attachment")
        return [json.loads(line)["body"] for line in answer.text.splitlines()]

    monkeypatch.setattr(dlq, "PAGE_COUNT", 1)
    assert sorted(bodies()) == [f"{BODY} {number}" for number in range(3)]
    assert bodies("&grep=1$") == [f"{BODY} 1"]
    assert bodies("&until=1h+ago") == []
    assert reader.get("/dead-letters/export?name=billing&grep=(").status_code == 400
    shown = json.loads(reader.get("/dead-letters/group?name=billing&limit=2&format=json").text)
    assert (len(shown["messages"]), shown["more"]) == (2, True)


def test_names_go_to_the_page_of_their_thing(world: World, reader: TestClient) -> None:
    def leads_to(text: str) -> str:
        return reader.get("/find", params={"q": text}).headers["location"]

    assert leads_to("orders") == "/topic?name=orders"
    assert leads_to("billing") == "/group?name=billing"
    assert leads_to(world.message_id) == f"/messages?which={world.message_id}"
    assert leads_to("ord") == "/topics?q=ord"
    assert reader.get(leads_to(world.message_id)).headers["location"].startswith("/message?id=")


def test_a_condition_that_is_none_does_not_find_all(reader: TestClient) -> None:
    answer = reader.get("/messages?topic=orders&since=1d+ago&sql=a+%3E&format=json")
    assert answer.status_code == 400
    assert "condition 'a >'" in answer.text


def test_a_topic_that_is_not_there_is_a_404_with_the_nearest_name(reader: TestClient) -> None:
    answer = reader.get("/topic?name=ordres")
    assert answer.status_code == 404
    assert "did you mean" in answer.text
    assert "orders" in answer.text


def test_the_page_speaks_chinese(reader: TestClient) -> None:
    answer = reader.get("/groups", headers={"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"})
    assert '<html lang="zh-CN"' in answer.text
    assert "消费组" in Page(answer.text).text
    chosen = reader.get("/groups?lang=zh")
    assert "mqcore_language=zh" in chosen.headers["set-cookie"]


@pytest.mark.parametrize(("query", "status"), [
    ("page=0", 400), ("page=x", 400), ("page=" + "9" * 30, 400), ("q=" + "x" * 5_000, 400),
])
def test_parameters_that_cannot_be_are_refused(
        reader: TestClient, query: str, status: int) -> None:
    assert reader.get(f"/topics?{query}").status_code == status


@pytest.fixture
def live(world: World) -> Iterator[TestClient]:
    with client(site(world)) as browser:
        yield browser


def test_the_history_has_what_was_seen(live: TestClient) -> None:
    assert live.get("/").status_code == 200
    found: dict[str, list[float | None]] = {}
    while not any(value is not None for value in found.get("lag", ())):
        answer = live.get("/history?names=in,out,lag")
        assert answer.status_code == 200
        found = answer.json()["values"]
    assert next(value for value in found["lag"] if value is not None) >= 12
