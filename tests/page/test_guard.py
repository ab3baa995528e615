"""The guard of the page: hosts, origins, sessions, logins, and a page that only shows."""
from __future__ import annotations

import re
import time

import pytest
from starlette.testclient import TestClient

from mqcore.client import Admin
from mqcore.page.app import PAGES
from mqcore.page.context import Site
from mqcore.page.sessions import local_path
from mqcore.page.users import Users, line_of
from tests.page.conftest import ORIGIN, World, client, site
from tests.page.html import Page

PASSWORD = "correct horse"


@pytest.mark.parametrize(("host", "status"), [
    ("127.0.0.1", 200), ("127.0.0.1:10980", 200), ("localhost:10980", 200), ("[::1]:10980", 200),
    ("10.1.2.3", 200), ("page.example", 200), ("PAGE.example:80", 200),
    ("attacker.example", 400), ("attacker.example:10980", 400), ("127.0.0.1.attacker.example", 400),
    ("localhost.attacker.example", 400), ("", 400), ("a@127.0.0.1", 400), ("127.0.0.1/x", 400),
    ("[::1", 400), ("x y", 400),
])
def test_a_host_that_is_not_this_server_gets_nothing(
        world: World, host: str, status: int) -> None:
    with client(site(world, hosts=("page.example",))) as browser:
        answer = browser.get("/audit", headers={"Host": host})
        assert answer.status_code == status
        assert status == 200 or "Audit" not in answer.text


def form_of(browser: TestClient, path: str) -> dict[str, str]:
    """The fields of a page's forms: the last one of a name counts."""
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    return {name: value for name, value in Page(answer.text).fields.items() if name}


CREATE = "/change?do=topic-create&topic=made-here&queues=3&preview=1"


@pytest.mark.parametrize("path", sorted({*PAGES, "/logout", "/static/page.css", "/no-such-page"}))
def test_a_page_that_only_shows_has_no_post(world: World, path: str) -> None:
    with client(site(world)) as browser:
        answer = browser.post(path, data={"do": "topic-create", "topic": "made-here"})
        assert answer.status_code in (403, 404, 405)
        assert browser.put(path).status_code == browser.delete(path).status_code == 405
    with Admin(world.namesrv) as admin:
        assert "made-here" not in admin.topics()


def test_a_page_that_only_shows_previews_and_names_the_command(world: World) -> None:
    with client(site(world)) as browser:
        answer = browser.get(CREATE)
        page = Page(answer.text)
        assert "token" not in page.fields
        assert "mqcore topic create --queues 3 made-here" in page.text
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("headers", [
    {"Origin": "http://attacker.example"}, {"Origin": "null"}, {}, {"Origin": "http://127.0.0.1:81"},
    {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"},
    {"Origin": ORIGIN, "Sec-Fetch-Site": "same-site"}, {"Origin": "http://[::1"},
])
def test_a_form_of_another_site_changes_nothing(world: World, headers: dict[str, str]) -> None:
    with client(site(world, write=True), origin=None) as browser:
        fields = form_of(browser, CREATE)
        answer = browser.post("/change?do=topic-create", data=fields, headers=headers)
        assert answer.status_code == 403
    with Admin(world.namesrv) as admin:
        assert "made-here" not in admin.topics()


def test_a_form_of_another_session_changes_nothing(world: World) -> None:
    of = site(world, write=True)
    with client(of) as browser:
        theirs = form_of(browser, CREATE)
        browser.cookies.clear()
        form_of(browser, CREATE)
        for token in (theirs["token"], "", "\udcff", "x" * 100):
            answer = browser.post("/change?do=topic-create", data={
                **theirs, "token": token.encode(errors="replace")})
            assert answer.status_code == 403
        browser.cookies.set("mqcore_session", "forged")
        assert browser.post("/change?do=topic-create", data=theirs).status_code == 403
    assert not of.trail.lines


def test_the_cookie_of_a_session_is_for_this_server_only(world: World) -> None:
    with client(site(world, write=True)) as browser:
        cookie = browser.get("/audit").headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "set-cookie" not in browser.get("/audit").headers


# -- logins ---------------------------------------------------------------------------------------

def with_login(world: World, **options: bool) -> Site:
    return site(world, users=Users(time.monotonic, (line_of("ann", PASSWORD),)), **options)


def test_without_a_login_nothing_is_shown(world: World) -> None:
    with client(with_login(world)) as browser:
        for path in PAGES:
            answer = browser.get(path)
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/login?then=")
            assert browser.get(f"{path}?format=json").status_code == 401
        assert browser.get("/static/page.css").status_code == 200
        page = Page(browser.get("/login?then=/topics").text)
        assert page.faults == []


def test_a_login_opens_the_page_it_was_for_and_ends(world: World) -> None:
    of = with_login(world, write=True)
    with client(of) as browser:
        before = browser.cookies.get("mqcore_session")
        answer = browser.post("/login?then=/topics?kind=all",
                              data={"name": "ann", "password": PASSWORD})
        assert answer.status_code == 303
        assert answer.headers["location"] == "/topics?kind=all"
        assert browser.cookies.get("mqcore_session") != before
        page = Page(browser.get("/topics").text)
        assert "Log out" in page.text
        assert browser.post("/logout", data={"token": "x"}).status_code == 403
        assert browser.post("/logout", data={"token": page.fields["token"]}).status_code == 303
        assert browser.get("/topics").status_code == 303
        assert [(line.user, line.what, line.outcome) for line in of.trail.lines] == [
            ("ann", "login", "done")]


def test_five_wrong_passwords_a_minute_are_all(world: World) -> None:
    now = [0.0]
    of = site(world, users=Users(lambda: now[0], (line_of("ann", PASSWORD),)))
    with client(of) as browser:
        for name in ("ann", "ann", "bob", "ann", ""):
            assert browser.post("/login", data={
                "name": name, "password": "wrong"}).status_code == 403
        assert browser.post("/login", data={
            "name": "ann", "password": PASSWORD}).status_code == 429
        now[0] = 61.0
        assert browser.post("/login", data={
            "name": "ann", "password": PASSWORD}).status_code == 303
    assert [line.outcome.partition(":")[0] for line in of.trail.lines] == [
        "done", *["refused"] * 6]


def test_an_administrators_account_signs_what_it_asks_for(world: World) -> None:
    asked: list[str] = []

    def account(key: str, secret: str) -> bool:
        asked.append(key)
        return (key, secret) == ("operator", "operator-secret")

    of = site(world, users=Users(time.monotonic, account=account))
    with client(of) as browser:
        assert browser.get("/topics").status_code == 303
        assert browser.post("/login", data={
            "name": "operator", "password": "wrong"}).status_code == 403
        assert browser.post("/login", data={
            "name": "operator", "password": "operator-secret"}).status_code == 303
        token = Page(browser.get("/topics").text).fields["token"]
        assert list(of.clusters[0]._admins) == [("operator", False)]
        browser.post("/logout", data={"token": token})
        assert list(of.clusters[0]._admins) == []
    assert asked == ["operator", "operator"]


def test_a_session_ends_when_it_is_not_used() -> None:
    now = [0.0]
    users = Users(lambda: now[0])
    key = users.begin("ann")
    now[0] = 12 * 3_600.0
    assert users.session(key) is not None
    now[0] += 12 * 3_600.0 + 1
    assert users.session(key) is None
    keys = [users.begin() for _ in range(1_001)]
    assert users.session(keys[0]) is None
    assert users.session(keys[1]) is not None


def test_a_line_of_a_user_holds_no_password() -> None:
    line = line_of("ann", PASSWORD)
    assert re.fullmatch(r"ann:scrypt:14:[0-9a-f]{32}:[0-9a-f]{64}", line)
    assert line != line_of("ann", PASSWORD)
    users = Users(time.monotonic, (line,))
    assert users.check("ann", PASSWORD) == (True, None)
    for name, password in (("ann", PASSWORD + " "), ("ann", ""), ("bob", PASSWORD), ("", ""),
                           ("ann", "x" * 10_000)):
        assert users.check(name, password) == (False, None)


@pytest.mark.parametrize(("path", "goes_to"), [
    ("/topics?kind=all", "/topics?kind=all"), ("//attacker.example", "/"), ("/\\attacker", "/"),
    ("https://attacker.example", "/"), ("javascript:alert(1)", "/"), ("", "/"), ("/\n/x", "/"),
])
def test_a_login_leads_to_this_server_only(path: str, goes_to: str) -> None:
    assert local_path(path) == goes_to
