"""Every page against stock brokers: it works, or says what they cannot say."""
from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from mqcore.client import Admin, BrokerError, Message, Producer, PushConsumer, Reject
from mqcore.page.app import PAGES
from mqcore.page.asking import Cluster
from mqcore.page.audit import Trail
from mqcore.page.context import Site
from mqcore.page.users import Users
from tests.page.conftest import client
from tests.page.html import Page
from tests.page.test_pages import PARTS
from tests.support.ci import unavailable
from tests.support.stock import STOCK5_VERSION, STOCK_VERSION, have_stock, stock_cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

TOPIC, GROUP = "page-stock", "page-stock-group"
NEEDED = {
    "/topic": f"name={TOPIC}", "/group": f"name={GROUP}", "/tail": f"topic={TOPIC}",
    "/messages": f"topic={TOPIC}&since=1d+ago", "/message": "place={place}",
    "/message/groups": "place={place}", "/dead-letters/group": f"name={GROUP}",
    "/transaction": "id={id}", "/trace": "id={id}", "/client": f"group={GROUP}&id={{client}}",
    "/task": "id=none", "/change": f"do=offset-reset&group={GROUP}&topic={TOPIC}&aim=end&preview=1",
}
# page -> what is shown where a stock broker cannot say it
CANNOT = {"/access": "", "/trace": "Not shown", "/task": "no such task",
          "/store": "a stock broker cannot say them"}


def _reject(_message: object) -> None:
    raise Reject("it is to become a dead letter")


def has_rates(admin: Admin) -> bool:
    try:
        return bool(admin.clusters()) and not admin.cluster_status().unreachable
    except BrokerError:                # of its only broker
        return False


@pytest.fixture(scope="module", params=[STOCK_VERSION, STOCK5_VERSION])
def stock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
          ) -> Iterator[tuple[TestClient, dict[str, str]]]:
    if not have_stock(request.param):
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    with stock_cluster(tmp_path_factory.mktemp("stock"), {"enablePropertyFilter": True},
                       is_kept=False, version=request.param) as cluster, \
            Admin(cluster.namesrv_addr) as admin:
        # a stock broker refuses code 28 until its first second is over: it has no rates yet
        wait_until(lambda: has_rates(admin), "rates")
        admin.create_topic(TOPIC, queues=1)
        admin.create_group(GROUP)
        with Producer("page-stock", namesrv=cluster.namesrv_addr) as producer:
            sent = producer.send(Message(TOPIC, '{"a": 1}', tags="t", keys="k",
                                         properties={"amount": "7"}))
        with PushConsumer(GROUP, TOPIC, _reject, namesrv=cluster.namesrv_addr, start="earliest"):
            wait_until(lambda: len(admin.dead_letters(GROUP)) == 1
                       if f"%DLQ%{GROUP}" in admin.topics() else False, "a dead letter")
            values = {
                "place": quote(f"{TOPIC}/{sent.queue.broker_name}/{sent.queue.queue_id}/"
                               f"{sent.queue_offset}"),
                "id": sent.offset_message_id,
                "client": quote(admin.members(GROUP).members[0].client_id)}
            site = Site([Cluster(cluster.namesrv_addr)], Users(time.monotonic), Trail(), True)
            with client(site) as browser:
                yield browser, values


def test_every_page_works_or_says_why_not(stock: tuple[TestClient, dict[str, str]]) -> None:
    browser, values = stock
    wrong = {}
    for path in PAGES:
        if path in PARTS - {"/message/groups"}:
            continue
        query = NEEDED.get(path, "").format(**values)
        answer = browser.get(path + (f"?{query}" if query else ""), follow_redirects=True)
        page = Page(answer.text)
        ok = "Not shown" not in page.text and "No answer from" not in page.text
        if page.faults or "in the page, logged" in page.text or not (
                ok or CANNOT.get(path, "none") in page.text):
            wrong[path] = (answer.status_code, page.faults, page.text[:2_000])
        if CANNOT.get(path):
            assert CANNOT[path] in page.text, path
    assert wrong == {}


def test_messages_are_found_on_a_stock_broker(stock: tuple[TestClient, dict[str, str]]) -> None:
    browser, _ = stock
    for query in ("tag=t", "sql=amount+%3E+5", "grep=a.*1", "which=k"):
        answer = browser.get(f"/messages?topic={TOPIC}&since=1d+ago&format=json&{query}")
        assert len(answer.json()["messages"]) == 1, (query, answer.text)


def test_dead_letters_of_a_stock_broker_are_sent_again(
        stock: tuple[TestClient, dict[str, str]]) -> None:
    browser, _ = stock
    form = {"group": GROUP, "to": "topic"}
    page = Page(browser.get("/change", params={"do": "dlq-redrive", "preview": 1, **form}).text)
    task = browser.post("/change?do=dlq-redrive", data={
        **form, "token": page.fields["token"], "typed": GROUP}).headers["location"]
    wait_until(lambda: browser.get(f"{task}&format=json").json()["state"] == "done", "the task")
    assert browser.get(f"{task}&format=json").json()["sent"] == 1
