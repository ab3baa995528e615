"""The Taskiq broker: tasks, acks, delays, and a worker of several processes."""
from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from taskiq.acks import AcknowledgeType
from taskiq.brokers.inmemory_broker import InmemoryResultBackend
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver

from mqcore.client import Admin, ConfigError, Consumer, NoRouteError, Producer, RocketMQError
from mqcore.client.core.compression import Compressor
from mqcore.contrib.taskiq import DUE, RocketMQBroker
from mqcore.testing import MemoryBroker, broker
from tests.support.waiting import wait_until

numbers = count()
STOP_S = 30
APP = '''
import os

from mqcore.contrib.taskiq import RocketMQBroker

broker = RocketMQBroker(os.environ["NAMESRV"])


@broker.task
async def note(folder: str, number: int) -> None:
    with open(os.path.join(folder, str(number)), "a") as file:
        file.write(f"{os.getpid()} ")
'''


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with MemoryBroker() as running:
        yield running.namesrv


def made(namesrv: str, **options) -> RocketMQBroker:
    number = next(numbers)
    tasks = RocketMQBroker(namesrv, topic=options.get("topic", f"tasks{number}"),
                           group=f"workers{number}")
    tasks.result_backend = InmemoryResultBackend()
    return tasks


async def working(tasks: RocketMQBroker, scenario, **options):
    """Run the scenario beside a worker."""
    tasks.is_worker_process = True
    await tasks.startup()
    finish = asyncio.Event()
    receiver = Receiver(tasks, run_startup=False, **options)
    listening = asyncio.create_task(receiver.listen(finish))
    try:
        return await scenario()
    finally:
        finish.set()
        await listening
        await tasks.shutdown()


def test_tasks_and_their_results(namesrv):
    tasks = made(namesrv)

    @tasks.task
    async def add(x: int, y: int) -> int:
        return x + y

    async def scenario():
        sent = [await add.kiq(number, 1) for number in range(10)]
        return [(await one.wait_result(timeout=30)).return_value for one in sent]

    assert asyncio.run(working(tasks, scenario)) == list(range(1, 11))


def test_a_task_that_was_not_acked_comes_to_the_next_worker(namesrv):
    topic = f"again{next(numbers)}"
    ran: list[str] = []

    def tasks_of(name: str) -> RocketMQBroker:
        tasks = RocketMQBroker(namesrv, topic=topic, group=topic)
        tasks.result_backend = InmemoryResultBackend()
        tasks.register_task(lambda: ran.append(name), task_name="work")
        return tasks

    first, second = tasks_of("first"), tasks_of("second")

    async def once():
        await first.find_task("work").kiq()
        while not ran:
            await asyncio.sleep(0.01)

    async def again():
        while len(ran) < 2:
            await asyncio.sleep(0.01)

    asyncio.run(working(first, once, ack_type=AcknowledgeType.MANUAL))
    asyncio.run(asyncio.wait_for(working(second, again), 60))
    assert ran == ["first", "second"]
    with Admin(namesrv) as admin:
        wait_until(lambda: admin.lag(topic, topic).total == 0, "it is done")


@pytest.mark.parametrize("delay", [0.4, 2, "2.2"])
def test_a_delayed_task_runs_when_it_is_due(namesrv, delay):
    tasks = made(namesrv)

    @tasks.task
    async def when() -> float:
        return time.time()

    async def scenario():
        began = time.time()
        sent = await when.kicker().with_labels(delay=delay).kiq()
        return (await sent.wait_result(timeout=30)).return_value - began

    took = asyncio.run(working(tasks, scenario))
    assert float(delay) <= took < float(delay) + 10


def test_messages_that_are_no_tasks_end_no_worker(namesrv, monkeypatch):
    topic = f"foreign{next(numbers)}"
    tasks = RocketMQBroker(namesrv, topic=topic, group=topic)
    tasks.result_backend = InmemoryResultBackend()

    @tasks.task
    async def work() -> int:
        return 7

    with Producer("p", namesrv=namesrv) as producer:
        for due in ("soon", "9" * 400, "9" * 5_000):
            producer.send(topic, "x", properties={DUE: due}, shard="a")
        with monkeypatch.context() as broken:
            broken.setattr(Compressor, "compress", lambda self, body: (b"no zlib", 1))
            producer.send(topic, bytes(5_000), shard="a")
        producer.send(topic, "[" * 100_000, shard="a")             # Taskiq's own to tell
        producer.send(topic, "y", properties={DUE: str(round(time.time() * 1000) + 60_000)},
                      shard="a")                                    # no key, and not due

    async def scenario():
        return (await (await work.kiq()).wait_result(timeout=30)).return_value

    assert asyncio.run(working(tasks, scenario)) == 7
    with Consumer("g", f"%DLQ%{topic}", namesrv=namesrv, start="earliest") as consumer:
        assert len([next(consumer) for _ in range(4)]) == 4


@pytest.mark.parametrize(("error", "said"), [
    (ConfigError("never"), "reject"), (NoRouteError("later"), "retry"), (None, "ack")])
def test_a_task_that_is_not_due_is_delayed_again_or_comes_again(namesrv, monkeypatch, error, said):
    tasks = made(namesrv)
    told: list[str] = []

    async def tell(name):
        told.append(name)

    async def fail(body, keys, due):
        raise error

    if error is not None:
        monkeypatch.setattr(tasks, "_send", fail)
    message = SimpleNamespace(keys=[], ack=lambda: told.append("ack"),
                              retry=lambda: tell("retry"), reject=lambda: tell("reject"))

    async def scenario():
        await tasks.startup()
        await tasks._delay_again(message, b"x", time.time() + 60)
        await tasks.shutdown()

    asyncio.run(scenario())
    assert told == [said]


@pytest.mark.parametrize("delay", ["soon", "nan", "inf", "1e300"])
def test_what_cannot_be_sent_says_so(namesrv, delay):
    async def scenario():
        tasks = made(namesrv)
        tasks.register_task(lambda: None, task_name="work")
        await tasks.startup()
        try:
            with pytest.raises(SendTaskError) as raised:
                await tasks.find_task("work").kicker().with_labels(delay=delay).kiq()
        finally:
            await tasks.shutdown()
        return raised.value

    cause = asyncio.run(scenario()).__cause__
    assert isinstance(cause, ConfigError)
    assert f"delay {delay!r}: expected seconds" in str(cause)
    with pytest.raises(RocketMQError, match="did you mean namesrv"):
        RocketMQBroker("127.0.0.1:1", namesvr="x")


@pytest.mark.slow
def test_a_worker_of_two_processes(tmp_path: Path):
    (tmp_path / "app.py").write_text(APP)
    folder = tmp_path / "done"
    folder.mkdir()
    with broker() as running:
        env = {**os.environ, "NAMESRV": running.namesrv,
               "PYTHONPATH": str(Path(__file__).parents[2])}
        worker = subprocess.Popen(
            [sys.executable, "-m", "taskiq", "worker", "app:broker", "--workers=2"], cwd=tmp_path,
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with Admin(running.namesrv) as admin:
                admin.create_topic("taskiq", queues=4)

                def members() -> int:
                    try:
                        return len(admin.members("taskiq").members)
                    except RocketMQError:
                        return 0

                wait_until(lambda: members() == 2, "both processes are in the group")
            subprocess.run(
                [sys.executable, "-c",
                 "import asyncio, app\n"
                 "async def main():\n"
                 "    await app.broker.startup()\n"
                 f"    for number in range(40): await app.note.kiq({str(folder)!r}, number)\n"
                 "    await app.broker.shutdown()\n"
                 "asyncio.run(main())"], cwd=tmp_path, env=env, check=True, timeout=60)
            wait_until(lambda: len(list(folder.iterdir())) == 40, "all tasks ran")
        finally:
            worker.terminate()
            worker.wait(STOP_S)
    assert len({pid for path in folder.iterdir() for pid in path.read_text().split()}) == 2
