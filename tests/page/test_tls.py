"""The page towards brokers and name servers that want TLS and accounts."""
from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from mqcore.client import Admin, Credentials
from mqcore.page.asking import Cluster
from mqcore.page.audit import Trail
from mqcore.page.context import Site
from mqcore.page.users import Users
from tests.page.conftest import client
from tests.page.html import Page
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stock import free_port
from tests.support.waiting import WAIT_S
from tests.tls.certificates import Authority

KEY, SECRET = "operator", "operator-secret"
PATHS = ("/", "/topics", "/groups", "/store", "/clients", "/settings", "/delayed", "/transactions",
         "/dead-letters", "/access")


@dataclass
class Secured:
    """A broker that serves only TLS to accounts; its page's port, and who its authority is."""

    broker: MqcoreProcess
    port: int
    authority: Authority

    @property
    def url(self) -> str:
        return (f"rocketmq://{self.broker.namesrv_addr}?tls=verify&"
                f"ca={quote(str(self.authority.certificate), safe='')}")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "authority")
    certificate, key = authority.sign("server")
    (folder / "acl").mkdir()
    (folder / "acl" / "plain_acl.yml").write_text(
        f"accounts:\n- {{accessKey: {KEY}, secretKey: {SECRET}, admin: true}}\n")
    port = free_port()
    with mqcore_up(folder / "broker", {
            "tls.mode": "enforcing", "tls.certificate": certificate, "tls.key": key,
            "tls.client_enable": True, "tls.client_trust": authority.certificate,
            "acl.enable": True, "acl.folder": folder / "acl", "http.enable": True,
            "http.listen": f"127.0.0.1:{port}"}) as broker:
        yield Secured(broker, port, authority)


def test_the_page_of_a_broker_that_wants_tls_and_accounts(secured: Secured) -> None:
    browser = HTTPConnection("127.0.0.1", secured.port, timeout=WAIT_S)
    browser.request("POST", "/login", urlencode({"name": KEY, "password": SECRET}), {
        "Origin": f"http://127.0.0.1:{secured.port}",
        "Content-Type": "application/x-www-form-urlencoded"})
    answer = browser.getresponse()
    answer.read()
    assert answer.status == 303
    cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
    for path in PATHS:
        browser.request("GET", path, headers={"Cookie": cookie})
        answer = browser.getresponse()
        page = Page(answer.read().decode())
        assert answer.status == 200, (path, page.text)
        assert page.faults == []
        assert not re.search("Not shown|No answer from", page.text), (path, page.text)
    browser.request("GET", "/store?format=json", headers={"Cookie": cookie})
    found = json.loads(browser.getresponse().read())
    assert [one["broker"] for one in found["answer"]["brokers"]] == ["mqcore-a"]
    browser.close()


def test_the_page_by_itself_verifies_and_signs(secured: Secured) -> None:
    with Admin(secured.url, credentials=Credentials(KEY, SECRET)) as admin:
        admin.create_topic("over-tls", queues=1)
    cluster = Cluster(secured.url, Credentials(KEY, SECRET))
    with client(Site([cluster], Users(time.monotonic), Trail())) as browser:
        for path in PATHS:
            page = Page(browser.get(path).text)
            assert not re.search("Not shown|No answer from", page.text), (path, page.text)
        assert browser.get("/store?format=json").json()["broker"]["processes"]
        assert "over-tls" in browser.get("/topics").text


@pytest.mark.parametrize("way", ["no account", "in the clear", "another authority"])
def test_a_page_that_may_not_says_why(secured: Secured, way: str, tmp_path: Path) -> None:
    url = secured.url
    credentials = Credentials(KEY, SECRET)
    if way == "no account":
        credentials = Credentials("stranger", "another-secret")
    elif way == "in the clear":
        url = secured.broker.namesrv_addr
    else:
        other = Authority(tmp_path / "other")
        url = url.replace(quote(str(secured.authority.certificate), safe=""),
                          quote(str(other.certificate), safe=""))
    with client(Site([Cluster(url, credentials)], Users(time.monotonic), Trail())) as browser:
        answer = browser.get("/topics")
        page = Page(answer.text)
        assert answer.status_code in (403, 502, 504)
        assert "Not shown" in page.text
        assert SECRET not in answer.text
