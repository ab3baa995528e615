"""Journeys of a browser through the page of a broker at work: by hand, by keyboard, on a phone."""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from mqcore.client import Admin
from mqcore.page.app import PAGES
from tests.page.browser import axe, barriers, chromium
from tests.page.shop import shop
from tests.page.test_pages import PARTS
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import free_port
from tests.support.waiting import WAIT_S, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

DARK = {"/", "/group", "/message", "/store", "/change"}      # all that has colours of its own
NEEDED = {
    "/topic": "name=orders", "/group": "name=fraud-check", "/messages": "topic=orders&limit=5",
    "/tail": "topic=orders", "/message": "place={place}", "/transaction": "id={half}",
    "/dead-letters/group": "name=mailer", "/trace": "id={traced}",
    "/client": "group=billing&id={client}",
    "/change": "do=offset-reset&group=shipping&topic=orders&aim=end&preview=1",
}


@dataclass
class Shop:
    """A browser, the page of a broker at work, and names of what is in it."""

    browser: Browser
    url: str
    namesrv: str
    values: dict[str, str]
    axe: str

    def path(self, path: str) -> str:
        query = NEEDED.get(path, "").format(**self.values)
        return self.url + path + (f"?{query}" if query else "")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    port = free_port()
    folder = tmp_path_factory.mktemp("browser")
    settings = {"http.enable": True, "http.listen": f"127.0.0.1:{port}", "http.write": True}
    with chromium() as browser, mqcore_up(folder, settings) as broker, \
            shop(broker.namesrv_addr, per_second=80) as ready, Admin(broker.namesrv_addr) as admin:
        assert ready.wait(WAIT_S)
        wait_until(lambda: len(admin.dead_letters("mailer")) > 0
                   if "%DLQ%mailer" in admin.topics() else False, "a dead letter")
        found = admin.read("orders", count=1)[0]
        half = admin.pending_transactions(broker.broker_addr)[0]
        member = admin.members("billing").members[0]
        yield Shop(browser, f"http://127.0.0.1:{port}", broker.namesrv_addr, {
            "place": f"orders/{found.queue.broker_name}/{found.queue.queue_id}/"
                     f"{found.queue_offset}",
            "half": half.message_id, "traced": found.message_id,
            "client": member.client_id.replace("#", "%23")}, axe(folder))


@dataclass
class Visit:
    """A tab, and what its console said."""

    page: Page
    said: list[str]


def visit(world: Shop, **options: Any) -> Visit:
    context = world.browser.new_context(locale="en-GB", **options)
    context.set_default_timeout(WAIT_S * 1000)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text)
            if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    return Visit(page, said)


@pytest.fixture
def tab(world: Shop) -> Iterator[Visit]:
    opened = visit(world)
    yield opened
    opened.page.context.close()
    assert opened.said == []


def test_no_page_has_a_barrier_or_an_error(world: Shop) -> None:
    """Of each page, some dark as well, at the width of a phone: nothing is cut off either."""
    found: dict[str, list[str]] = {}
    for scheme in ("light", "dark"):
        opened = visit(world, bypass_csp=True, color_scheme=scheme, reduced_motion="reduce",
                       viewport={"width": 360, "height": 740})
        for path in PAGES:
            if path in {*PARTS, "/task"} or (scheme == "dark" and path not in DARK):
                continue
            opened.page.goto(world.path(path), wait_until="load")
            opened.page.get_by_role("heading", level=1).wait_for()
            wide = opened.page.evaluate("document.documentElement.scrollWidth")
            faults = barriers(opened.page, world.axe, only_colours=scheme == "dark")
            faults += [f"{wide} px wide"] if wide > 360 else []
            if faults:
                found[f"{scheme} {path}"] = faults
        opened.page.context.close()
        assert opened.said == []
    assert found == {}


def test_the_overview_is_live(world: Shop, tab: Visit) -> None:
    page = tab.page
    page.goto(world.url)
    rate = page.locator("#live dd").first
    page.locator("canvas").first.wait_for()
    seen = {rate.inner_text()}
    wait_until(lambda: seen.add(rate.inner_text()) or len(seen) > 2, "another rate")
    page.get_by_text("As a table").first.click()
    page.locator(".values td.right").first.wait_for()
    page.get_by_role("button", name="24 h").first.click()
    assert page.get_by_role("button", name="24 h").first.get_attribute("aria-pressed") == "true"


def test_from_a_lag_to_the_message_that_is_next(world: Shop, tab: Visit) -> None:
    """Overview, group, the member that owns a queue; then a topic's messages, and one decoded."""
    page = tab.page
    page.goto(world.url + "/groups")
    page.get_by_role("link", name="shipping", exact=True).click()
    page.get_by_role("heading", name="shipping group").wait_for()
    page.get_by_role("region", name="Queues with their owners").get_by_role(
        "link", name=re.compile("@")).first.click()
    page.get_by_role("heading", name="Threads").wait_for()
    page.goto(world.url + "/topic?name=orders")
    page.get_by_role("link", name="Messages", exact=True).last.click()
    page.get_by_role("region", name="Messages").locator("tbody a").first.click()
    page.get_by_text('"customer": 90071992547409').first.wait_for()
    page.get_by_role("region", name=re.compile("groups did with it")).get_by_role(
        "link", name="billing").wait_for()
    page.get_by_role("link", name="hex").click()
    page.get_by_text("00000000  7b").wait_for()


def test_a_topic_is_followed(world: Shop, tab: Visit) -> None:
    page = tab.page
    page.goto(world.url + "/topic?name=orders")
    page.get_by_role("link", name="Follow").click()
    rows = page.get_by_role("region", name="New messages").locator("tbody tr")
    wait_until(lambda: rows.count() >= 20, "messages")
    page.locator("#tail-state").get_by_text("shown:").wait_for()
    first, last = rows.first.inner_text(), rows.last.inner_text()
    assert first.split()[1] >= last.split()[1]
    rows.first.get_by_role("link").click()
    page.get_by_text('"customer": 900719925474').first.wait_for()


def test_members_that_disagree_are_seen(world: Shop, tab: Visit) -> None:
    tab.page.goto(world.url + "/group?name=fraud-check")
    tab.page.get_by_text("Subscriptions differ between members").wait_for()
    assert tab.page.get_by_role("table", name="Subscriptions compared").get_by_text(
        "card").count() == 1


def test_a_topic_is_made_and_deleted_by_hand(world: Shop, tab: Visit) -> None:
    page = tab.page
    page.goto(world.url + "/topics")
    page.get_by_role("link", name="Create").click()
    page.get_by_label("topic *").fill("by-hand")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_text("created topic by-hand").wait_for()
    page.goto(world.url + "/topic?name=by-hand")
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Preview").click()
    page.get_by_label("Type the name to confirm:").fill("by-hand")
    page.get_by_role("button", name="Delete a topic").click()
    page.get_by_text("deleted topic by-hand").wait_for()
    page.get_by_role("link", name="Audit").click()
    page.get_by_text("mqcore topic rm by-hand").wait_for()


def test_dead_letters_are_sent_again_by_hand(world: Shop, tab: Visit) -> None:
    page = tab.page
    page.goto(world.url + "/dead-letters")
    page.get_by_role("link", name="mailer").click()
    page.get_by_role("link", name="Send again").click()
    page.get_by_label("Type the name to confirm:").fill("mailer")
    page.get_by_role("button", name="Send dead letters again").click()
    page.get_by_role("heading", name="mailer dead letters that are sent again").wait_for()
    page.locator("#task").get_by_text("done", exact=True).wait_for()
    page.get_by_role("link", name="Tasks").click()
    page.get_by_role("region", name="Dead letters that are sent again").get_by_text(
        "done").first.wait_for()


def test_all_is_reached_by_the_keyboard(world: Shop, tab: Visit) -> None:
    page = tab.page
    page.goto(world.url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.get_by_role("heading", name="Topics", level=1).wait_for()
    page.keyboard.press("/")
    page.keyboard.type("ship")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="orders", exact=True).wait_for(state="detached")
    page.get_by_role("link", name="shipments", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="shipments topic").wait_for()


def test_theme_and_language_stay_chosen(world: Shop, tab: Visit) -> None:
    page = tab.page
    page.goto(world.url + "/topics")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("link", name="中文").click()
    page.get_by_role("heading", name="主题").wait_for()
    page.get_by_role("link", name="消费组", exact=True).click()
    page.get_by_role("heading", name="消费组", level=1).wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
