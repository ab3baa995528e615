"""Expressions and bodies that are made to cost much: they end, and others are served meanwhile."""
from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import click
import pytest

from mqcore.admin.shell import limited
from mqcore.admin.shell.grep import grepping
from mqcore.admin.shell.limited import Limited, LimitedError
from mqcore.client import Admin, Message, Producer
from tests.http.asking import get, raw
from tests.page.test_live import Served
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import free_port
from tests.support.waiting import wait_until
from tests.workers.processes import pid_of

ENDLESS = "(a+)+$"
FOOD = b"a" * 40 + b"b"                # 2**40 steps of ENDLESS


def grep(text: str, *bodies: bytes) -> list[bool]:
    async def run() -> list[bool]:
        async with grepping(text) as search:
            return await search.found(bodies)

    return asyncio.run(run())


@pytest.mark.parametrize(("text", "found"), [
    ("plum", [True, False, True]), ("^plum$", [True, False, False]), ("p|q", [True, True, True]),
    ("(?i)PEACH", [False, True, False]), ("nothing", [False] * 3), ("x*", [True] * 3),
])
def test_bodies_are_found_by_text_and_by_expression(text: str, found: list[bool]) -> None:
    assert grep(text, b"plum", b"peach quince", b"plums") == found


def test_many_bodies_go_in_several_requests() -> None:
    bodies = [b"x" * 400_000 + str(number).encode() for number in range(7)]
    assert grep("[46]$", *bodies) == [False, False, False, False, True, False, True]


@pytest.mark.parametrize("text", ["(", "[z-a]", "a{9999999999}", "(?P<a>x)(?P<a>y)", "(" * 5_000])
def test_an_expression_that_is_none_is_an_error_of_its_parameter(text: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        grep(text, b"body")
    assert "--grep" in raised.value.format_message()


def test_an_expression_without_an_end_is_ended() -> None:
    with pytest.raises(LimitedError, match="1 s of processor time"):
        grep(ENDLESS, FOOD)
    assert not limited._running


def test_a_few_processes_are_all_that_run() -> None:
    async def run() -> None:
        async with grepping("a.c"), grepping("a.c"), grepping("a.c"), grepping("a.c"):
            async with grepping("abc") as plain:
                assert await plain.found([b"abc"]) == [True]
            with pytest.raises(LimitedError, match="4 others are worked on"):
                async with grepping("a.c"):
                    pass

    asyncio.run(run())
    assert not limited._running


def test_memory_has_an_end_and_an_error_leaves_the_process() -> None:
    async def run() -> None:
        async with Limited("tests.page.hungry:work", "a body", 60.0) as child:
            assert await child.ask(b"10") == b"10"
            with pytest.raises(LimitedError, match="a body: MemoryError"):
                await child.ask(str(1 << 30).encode())
            assert await child.ask(b"20") == b"20"

    asyncio.run(run())


# -- in the http process of a broker --------------------------------------------------------------

@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    port = free_port()
    with mqcore_up(tmp_path_factory.mktemp("hostile"), {
            "http.enable": True, "http.listen": f"127.0.0.1:{port}"}) as broker:
        with Admin(broker.namesrv_addr) as admin:
            admin.create_topic("food", queues=1)
            with Producer("hostile", namesrv=broker.namesrv_addr) as producer:
                producer.send(Message("food", FOOD))
            wait_until(lambda: admin.topic_stats("food").message_count == 1, "the message")
        yield Served(broker, port)


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()]


def test_others_are_served_while_an_expression_has_no_end(served: Served) -> None:
    http = pid_of(served.broker, "http")
    assert get(served.port, "/messages")[0].status == 200

    def served_meanwhile() -> bool:
        answers: list[tuple[int, str]] = []

        def search() -> None:
            answer, text = get(served.port, f"/messages?topic=food&since=1d+ago&format=json&grep="
                                            f"{quote(ENDLESS)}")
            answers.append((answer.status, text))

        thread = threading.Thread(target=search)
        thread.start()
        try:
            wait_until(lambda: children(http) or answers, "the process of the search")
            assert get(served.port, "/healthz")[0].status == 200
            assert get(served.port, "/topics")[0].status == 200
            before = not answers
        finally:
            thread.join()
        assert answers[0][0] in (400, 502)
        assert "processor time" in answers[0][1] or "no answer within" in answers[0][1]
        wait_until(lambda: not children(http), "the end of the process")
        return before

    wait_until(served_meanwhile, "an answer before that of the search")


HONEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


TWO_WAYS = [
    b"Host: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 0",
    b"Host: 127.0.0.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x",
    b"Host: attacker.example\r\nHost: 127.0.0.1", b"Host: 127.0.0.1\r\nHost: 127.0.0.1",
    b"Host: 127.0.0.1\r\nX: a\rContent-Length: 5", b"Host: 127.0.0.1\r\nContent-Length : 5",
    b"Host: 127.0.0.1\r\nContent-Length: +0", b"Host: 127.0.0.1\r\n\x0bContent-Length: 5",
    b"Host: 127.0.0.1\r\nX: a\0b", b"Host: 127.0.0.1\r\n: a",
]
BARE_LF = b"Host: 127.0.0.1\r\nX: a\nContent-Length: 5"      # h11 takes it as the end of a line


@pytest.mark.parametrize(("path", "fields"), [
    *((path, fields) for path in (b"/healthz", b"/audit") for fields in TWO_WAYS),
    (b"/healthz", BARE_LF),
])
def test_a_head_that_can_be_read_in_two_ways_is_refused(
        served: Served, path: bytes, fields: bytes) -> None:
    answer = raw(served.port, b"GET " + path + b" HTTP/1.1\r\n" + fields + b"\r\n\r\n" + HONEST)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"400"]


@pytest.mark.parametrize("path", [
    "/static/../../../etc/passwd", "/static/%2e%2e/%2e%2e/app.py", "/static/..%2fapp.py",
    "/static//etc/passwd", "/static/vendor/..%5c..%5capp.py", "/static/%00", "/../app.py",
    "//127.0.0.1/audit", "/audit/", "/audit%00", "/static/", "/static",
    "http://attacker.example/audit",
])
def test_a_path_leads_to_no_other_file_or_page(served: Served, path: str) -> None:
    answer, text = get(served.port, path)
    assert 300 <= answer.status < 500
    assert "root:" not in text
    assert "import" not in text
    target = answer.getheader("location") or "/"
    assert not target.startswith("//")
    assert "attacker" not in target


def test_readers_that_do_not_read_keep_no_one_out(served: Served) -> None:
    peers = []
    try:
        for _ in range(80):                 # more than all connections and watchers of the page
            peers.append(socket.create_connection(("127.0.0.1", served.port), 60))
            peers[-1].sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert get(served.port, "/audit")[0].status == 200
        assert get(served.port, "/healthz")[0].status == 200
        assert get(served.port, "/topics")[0].status == 200
    finally:
        for peer in peers:
            peer.close()

    def is_free() -> bool:
        with socket.create_connection(("127.0.0.1", served.port), 60) as peer:
            peer.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            return b"200 OK" in peer.recv(4_096)

    wait_until(is_free, "a place for a page with live figures")
