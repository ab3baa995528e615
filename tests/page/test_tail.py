"""A page that follows a topic: bounds, filters, browsers that leave, brokers that do not answer."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any
from urllib.parse import quote

import click
import pytest

from mqcore.admin.shell.exits import Failure
from mqcore.admin.shell.grep import grepping
from mqcore.broker.settings.masks import all_parsed
from mqcore.client import Admin, Message, Producer, RocketMQError
from mqcore.page import asking, tailing
from mqcore.page.app import application
from mqcore.page.asking import Cluster
from mqcore.page.masking import MaskedAdmin, Masks, PageAdmin
from mqcore.page.serving import Connections
from mqcore.page.tailing import Readers, Round, TooManyReadersError, Wanted, _Reader
from tests.page.conftest import BODY, HOSTILE, World, site
from tests.page.html import Page
from tests.support.waiting import WAIT_S, wait_until

TOPIC = "followed"


@pytest.fixture
def topic(world: World) -> Iterator[str]:
    with Admin(world.namesrv) as admin:
        admin.create_topic(TOPIC, queues=4)
        yield TOPIC
        admin.delete_topic(TOPIC)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "ROUND_S", 0.01)


def send(world: World, *messages: Message) -> None:
    with Producer("tail-tests", namesrv=world.namesrv) as producer:
        producer.send_many(list(messages))
    with Admin(world.namesrv) as admin:         # what is stored is dispatched a moment later
        for one in {message.topic for message in messages}:
            wait_until(lambda one=one: admin.topic_stats(one).message_count >= sum(
                message.topic == one for message in messages), "the messages")


def bodies(rounds: Sequence[Round]) -> list[str]:
    return sorted(message.text() for one in rounds for message in one.messages)


def follow(
    world: World, wanted: Wanted, work: Callable[[], None], *, masks: Masks | None = None,
    until: Callable[[list[Round]], bool] = lambda rounds: bool(bodies(rounds)),
) -> list[Round]:
    """The rounds after `work`, until enough came; nothing is from before."""
    async def run() -> list[Round]:
        kind = PageAdmin if masks is None else MaskedAdmin
        async with kind(world.namesrv) as admin, aclosing(
                Readers().follow(admin, wanted)) as reader:
            admin.masks = masks or Masks()
            assert (await anext(reader)).messages == ()
            await asyncio.to_thread(work)
            rounds = []
            async with asyncio.timeout(WAIT_S):
                async for one in reader:
                    rounds.append(one)
                    if until(rounds):
                        return rounds
        raise AssertionError("the reader ended")

    return asyncio.run(run())


def test_what_comes_is_shown_and_nothing_from_before(world: World, topic: str) -> None:
    send(world, *(Message(topic, f"before {number}") for number in range(8)))
    with Admin(world.namesrv) as admin:
        rounds = follow(world, Wanted(topic), lambda: send(
            world, *(Message(topic, f"after {number}") for number in range(8))),
            until=lambda rounds: len(bodies(rounds)) >= 8)
        assert bodies(rounds) == [f"after {number}" for number in range(8)]
        assert sum(one.left_out for one in rounds) == 0
        assert list(admin.topic_groups(topic)) == []


@pytest.mark.parametrize("wanted", [
    Wanted(TOPIC, tags="paid||sent"), Wanted(TOPIC, sql="amount > 5"), Wanted(TOPIC, key="k7"),
    Wanted(TOPIC, grep="plum"), Wanted(TOPIC, grep="p.um$"), Wanted(TOPIC, tags="paid", key="k7"),
])
def test_a_reader_filters(world: World, topic: str, wanted: Wanted) -> None:
    rounds = follow(world, wanted, lambda: send(
        world, Message(topic, "pear", tags="new", keys="k8", properties={"amount": "1"}),
        Message(topic, "plum", tags="paid", keys="k6 k7", properties={"amount": "9"})))
    assert bodies(rounds) == ["plum"]


def test_of_many_the_newest_are_shown_and_the_others_counted(world: World, topic: str) -> None:
    def seen(rounds: list[Round]) -> int:
        return len(bodies(rounds)) + sum(one.left_out for one in rounds)

    rounds = follow(world, Wanted(topic), lambda: send(
        world, *(Message(topic, f"{number}") for number in range(2_000))),
        until=lambda rounds: seen(rounds) >= 2_000)
    assert seen(rounds) == 2_000
    assert 40 <= max(len(one.messages) for one in rounds) <= 50


def test_large_bodies_are_bounded(world: World, topic: str) -> None:
    def seen(rounds: list[Round]) -> int:
        return sum(len(one.messages) + one.left_out for one in rounds)

    rounds = follow(world, Wanted(topic), lambda: send(
        world, *(Message(topic, bytes(1 << 20)) for _ in range(16))),
        until=lambda rounds: seen(rounds) >= 16)
    most = max(sum(message.body_size for message in one.messages) for one in rounds)
    assert most <= 5 << 20
    assert seen(rounds) == 16


def test_another_life_of_a_queue_is_followed(world: World, topic: str) -> None:
    send(world, *(Message(topic, f"{number}") for number in range(4)))

    async def run() -> Round:
        async with PageAdmin(world.namesrv) as admin, grepping(None) as search:
            wanted = Wanted(topic)
            reader = _Reader(admin, wanted, wanted.subscription(), search)
            await reader.round()
            reader.positions = {queue: end + 100 for queue, end in (reader.positions or {}).items()}
            return await reader.round()

    assert bodies([asyncio.run(run())]) == ["0", "1", "2", "3"]


def test_readers_have_a_number_and_an_end(world: World, topic: str) -> None:
    async def run() -> None:
        readers = Readers()
        async with PageAdmin(world.namesrv) as admin, AsyncExitStack() as stack:
            for _ in range(16):
                reader = await stack.enter_async_context(aclosing(
                    readers.follow(admin, Wanted(topic))))
                await anext(reader)
            with pytest.raises(TooManyReadersError):
                await anext(readers.follow(admin, Wanted(topic)))
            assert readers.count == 16
        assert readers.count == 0
        times = iter((0.0, 100.0, 100.0, 899.0, 899.0, 901.0))
        async with PageAdmin(world.namesrv) as admin:
            rounds = [one async for one in readers.follow(
                admin, Wanted(topic), lambda: next(times))]
        assert len(rounds) == 2
        assert readers.count == 0

    asyncio.run(run())


@pytest.mark.parametrize(("wanted", "error"), [
    (Wanted("no-such-topic"), RocketMQError), (Wanted(TOPIC, sql="("), Failure),
    (Wanted(TOPIC, grep="("), click.BadParameter), (Wanted(HOSTILE), RocketMQError),
    (Wanted(TOPIC, tags="||"), ValueError),
])
def test_what_cannot_be_followed_is_an_error(
        world: World, topic: str, wanted: Wanted, error: type[BaseException]) -> None:
    with pytest.raises(error):
        follow(world, wanted, lambda: None)


def test_masks_hold_for_what_is_followed(world: World, topic: str) -> None:
    masks = Masks(all_parsed([f"{topic}=json:$.card", f"{topic}=property:KEYS"]))
    rounds = follow(world, Wanted(topic), lambda: send(
        world, Message(topic, '{"card": "secret"}', keys="secret")), masks=masks)
    message, = (message for one in rounds for message in one.messages)
    assert message.json() == {"card": "***"}
    assert message.keys == ["***"]
    with pytest.raises(Failure, match="hidden from you"):
        follow(world, Wanted(topic, key="secret"), lambda: None, masks=masks)


# -- over a socket --------------------------------------------------------------------------------

Browser = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(world: World, connections: list[Connections]) -> AsyncIterator[
        Callable[[str], Awaitable[Browser]]]:
    """Opens a connection that has asked for a path."""
    of = site(world)
    known = Connections(application(of))
    connections.append(known)
    server = await asyncio.get_running_loop().create_server(known.new, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def ask(path: str) -> Browser:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return reader, writer

    try:
        async with asyncio.timeout(4 * WAIT_S):
            yield ask
    finally:
        server.close()
        await known.close()
        await of.close()


async def told(browser: Browser, part: bytes) -> bytes:
    read = b""
    while part not in read:
        piece = await browser[0].read(65_536)
        assert piece, read
        read += piece
    return read


def run(work: Awaitable[Any]) -> Any:
    async def begin() -> Any:
        return await work

    return asyncio.run(begin())


def test_events_have_rows_of_hostile_messages(world: World, topic: str) -> None:
    async def work() -> None:
        async with served(world, []) as ask:
            browser = await ask(f"/tail/events?topic={topic}")
            await told(browser, b"shown:")
            await asyncio.to_thread(send, world, Message(
                topic, BODY, tags="<b>t</b>", keys="<i>k</i>", properties={"<u>": "x"}))
            text = (await told(browser, b"<tr>")).decode()
            text += (await told(browser, b"</hx-partial>")).decode() if (
                "</hx-partial>" not in text.rpartition("<tr>")[2]) else ""
            html = "\n".join(line.removeprefix("data: ") for line in text.splitlines()
                             if line.startswith("data: "))
            page = Page(f"<table>{html}</table>")
            assert page.faults == []
            assert "<script>alert(3)</script>" in page.text
            assert page.links[0].startswith("/message?place=followed")

    run(work())


def test_readers_of_browsers_that_left_end(world: World, topic: str) -> None:
    path = f"/tail/events?topic={topic}"

    async def work() -> None:
        async with served(world, []) as ask:
            opened = [await ask(path) for _ in range(16)]
            for one in opened:
                await told(one, b"shown:")
            assert b"16 others follow topics" in await told(await ask(path), b"event: end")
            for _, writer in opened:
                writer.close()
            while True:
                text = await told(await ask(path), b"shown:")
                if b"others follow" not in text:
                    return
                await asyncio.sleep(0)

    run(work())


def test_a_browser_that_takes_nothing_loses_its_connection(
        world: World, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        now = [0.0]
        connections: list[Connections] = []
        async with served(world, connections) as ask:
            known = connections[0]
            known._clock = lambda: now[0]
            reader, writer = await ask(f"/tail/events?topic={topic}")
            await told((reader, writer), b"shown:")
            one, = known._all()
            known.sweep()
            one.transport.pause_reading()                  # nothing is taken from here on
            monkeypatch.setattr(type(one.transport), "get_write_buffer_size", lambda _: 100_000)
            for now[0] in (1.0, 25.0):
                known.sweep()
                assert not one.transport.is_closing()
            now[0] = 32.0
            known.sweep()
            assert one.transport.is_closing()

    run(work())


def test_the_form_says_what_it_does(world: World, topic: str) -> None:
    async def work() -> None:
        async with served(world, []) as ask:
            text = (await told(await ask(f"/tail?topic={topic}&grep=a"), b"</html>")).decode()
            page = Page(text.partition("\r\n\r\n")[2])
            assert page.faults == []
            assert f"mqcore message tail -t {topic} --grep a" in page.text
            assert "/tail/events?topic=followed" in text
            both = (await told(await ask(f"/tail?topic={topic}&tag=a&sql=b"), b"</html>")).decode()
            assert "400" in both.splitlines()[0]
            await told(await ask(f"/tail?topic={quote(HOSTILE)}"), b"</html>")

    run(work())


def test_a_page_names_a_cluster_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "REQUEST_S", 0.5)

    async def work() -> None:
        cluster = Cluster("127.0.0.1:1")
        with pytest.raises(RocketMQError, match="cannot connect"):
            await anext(Readers().follow(await cluster.admin(), Wanted("t")))
        await cluster.close()

    run(work())
