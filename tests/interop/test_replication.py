"""A log that stock brokers and ours follow of each other: the same bytes, queues and results."""
from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mqcore.client import AsyncProducer, Message, RocketMQError, SendStatus
from mqcore.store.verify.store import verify
from tests.replication.stores import log_of, queues_of
from tests.support.dice import seed_of_run
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.relay import Relay
from tests.support.stock import StockProcess, free_broker_port, require_stock, start_broker
from tests.support.waiting import wait_until
from tests.workers.processes import kill, pid_of

pytestmark = pytest.mark.timeout(300)
NAME = TOPIC = "replicated"
SEGMENT_SIZE = 1 << 20
SEED = seed_of_run()
KILLS = int(os.environ.get("MQCORE_TEST_KILLS", "4"))
BODY_BYTES = 2_000
OURS: dict[str, object] = {
    "broker.name": NAME, "store.segment_size_bytes": SEGMENT_SIZE,
    "store.message_size_max_bytes": 65_536, "replication.slave_timeout_ms": 500}
STOCK: dict[str, object] = {
    "brokerName": NAME, "mappedFileSizeCommitLog": SEGMENT_SIZE, "slaveTimeout": 500,
    "maxMessageSize": 65_536}


@pytest.fixture
def names(tmp_path: Path) -> Iterator[str]:
    require_stock()
    with mqcore_namesrv(tmp_path / "names") as running:
        yield running.namesrv_addr


@contextlib.contextmanager
def stock_broker(
    folder: Path, names: str, changes: dict[str, object], port: int | None = None, *,
    ip: str = "127.0.0.1", program: Sequence[str] = (), is_kept: bool = True,
) -> Iterator[StockProcess]:
    """is_kept: it ends cleanly, as what it leaves is looked at; else it is killed."""
    broker = start_broker(folder, names, {**STOCK, **changes}, port, ip=ip, program=program)
    try:
        yield broker
    finally:
        if is_kept:
            broker.stop()
        else:
            broker.kill()


def sent(names: str, count: int, between: Callable[[int], object] = lambda _: None,
         ) -> list[SendStatus | str]:
    """What became of so many messages, one after the other."""
    async def run() -> list[SendStatus | str]:
        found: list[SendStatus | str] = []
        async with AsyncProducer("replication", namesrv=names, retry_count=0) as producer:
            for number in range(count):
                try:
                    result = await producer.send(Message(
                        TOPIC, b"%06d" % number + os.urandom(BODY_BYTES // 2).hex().encode(),
                        keys=f"k{number}"))
                    found.append(result.status)
                except RocketMQError as error:                # a process was killed under it
                    found.append(str(error))
                between(number)
        return found

    return asyncio.run(run())


def alike(master: Path, slave: Path) -> bool:
    return log_of(master) == log_of(slave)


def settled(names: str, wanted: SendStatus) -> None:
    """Waits until messages are answered so."""
    wait_until(lambda: sent(names, 1) == [wanted], f"a message that is answered {wanted.name}")


def torment(dice: random.Random, relay: Relay, target: str,
            kills: list[tuple[MqcoreProcess, str]]) -> Callable[[int], None]:
    """Now and then a link is cut, or a process killed."""
    def maybe(number: int) -> None:
        if number % (600 // max(KILLS, 1) or 1) != 1:
            return
        if dice.random() < 0.4:
            relay.switch(target)
        else:
            kill(*dice.choice(kills))
    return maybe


@pytest.mark.slow
def test_another_history_of_a_stock_master_is_refused_and_nothing_is_written(
    tmp_path: Path, names: str,
) -> None:
    """Its records are as long as those here, so that they begin and end at the same positions."""
    ports = free_broker_port(), free_broker_port()
    stock = tmp_path / "one" / "store"
    settings = {**OURS, "broker.id": 1, "replication.role": "slave"}

    def follower(port: int) -> contextlib.AbstractContextManager[MqcoreProcess]:
        return mqcore_up(tmp_path / "ours", {
            **settings, "replication.master_address": f"127.0.0.1:{port + 1}"}, namesrv_addr=names)

    with stock_broker(tmp_path / "one", names, {}, ports[0]):
        settled(names, SendStatus.SEND_OK)
        sent(names, 30)
        with follower(ports[0]) as slave:
            wait_until(lambda: alike(stock, slave.store), "the log")
    before = log_of(slave.store)
    with stock_broker(tmp_path / "two", names, {}, ports[1]):
        settled(names, SendStatus.SEND_OK)
        sent(names, 60)
        with follower(ports[1]) as slave:
            wait_until(lambda: "another one than the log here" in slave.output.read_text(),
                       "the line")
            assert slave.output.read_text().count("is not followed") == 1
    assert log_of(slave.store) == before
    with stock_broker(tmp_path / "one", names, {}, ports[0]):
        settled(names, SendStatus.SEND_OK)
        with follower(ports[0]) as slave:
            wait_until(lambda: alike(stock, slave.store), "the log of the first one")
            assert "is not followed" not in slave.output.read_text()
    assert log_of(slave.store).startswith(before)
    assert verify(slave.store).status == 0


@pytest.mark.slow
def test_a_slave_of_ours_has_the_log_and_the_queues_of_a_stock_master(
    tmp_path: Path, names: str,
) -> None:
    print(f"seed {SEED}")
    port = free_broker_port()
    with stock_broker(tmp_path / "stock", names, {"brokerRole": "SYNC_MASTER"}, port) as master:
        assert sent(names, 2) == [SendStatus.SLAVE_NOT_AVAILABLE] * 2
        with Relay(f"127.0.0.1:{port + 1}") as relay, mqcore_up(
                tmp_path / "ours", {**OURS, "broker.id": 1, "replication.role": "slave",
                                    "replication.master_address": relay.address},
                namesrv_addr=names) as slave:
            settled(names, SendStatus.SEND_OK)
            pid = pid_of(slave, "ha-slave")
            os.kill(pid, signal.SIGSTOP)
            assert sent(names, 1) == [SendStatus.FLUSH_SLAVE_TIMEOUT]
            os.kill(pid, signal.SIGCONT)
            settled(names, SendStatus.SEND_OK)
            sent(names, 600, torment(random.Random(SEED), relay, f"127.0.0.1:{port + 1}", [
                (slave, role) for role in ("ha-slave", "writer", "dispatcher")]))
            stock = master.home / "store"
            wait_until(lambda: alike(stock, slave.store), "the same log")
            assert len(log_of(stock)) > SEGMENT_SIZE
            settled(names, SendStatus.SEND_OK)
            wait_until(lambda: alike(stock, slave.store), "the last message")
    assert alike(stock, slave.store)
    assert verify(slave.store).status == 0
    assert queues_of(stock, TOPIC) == queues_of(slave.store, TOPIC)


@pytest.mark.slow
def test_a_stock_slave_has_the_log_and_the_queues_of_a_master_of_ours(
    tmp_path: Path, names: str,
) -> None:
    print(f"seed {SEED}")
    with mqcore_up(tmp_path / "ours", {
            **OURS, "replication.role": "sync-master", "replication.listen": True},
            namesrv_addr=names) as master:
        assert sent(names, 2) == [SendStatus.SLAVE_NOT_AVAILABLE] * 2
        target = f"127.0.0.1:{int(master.broker_addr.rpartition(':')[2]) + 1}"
        with Relay(target) as relay, stock_broker(tmp_path / "stock", names, {
                "brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": relay.address,
                "haSendHeartbeatInterval": 500}) as slave:
            settled(names, SendStatus.SEND_OK)
            os.kill(slave.pid, signal.SIGSTOP)
            assert sent(names, 1) == [SendStatus.FLUSH_SLAVE_TIMEOUT]
            os.kill(slave.pid, signal.SIGCONT)
            settled(names, SendStatus.SEND_OK)
            sent(names, 600, torment(random.Random(SEED), relay, target, [
                (master, role) for role in ("ha-master", "writer", "dispatcher")]))
            stock = slave.home / "store"
            wait_until(lambda: alike(master.store, stock), "the same log")
            assert len(log_of(stock)) > SEGMENT_SIZE
            wait_until(lambda: queues_of(stock, TOPIC) == queues_of(master.store, TOPIC),
                       "the same queues")
    assert verify(stock).status == 0


@pytest.mark.slow
def test_a_stock_slave_that_begins_late_gets_the_last_file_from_ours_too(
    tmp_path: Path, names: str,
) -> None:
    """And one of ours, from the same master, all of the log."""
    with mqcore_up(tmp_path / "ours", {**OURS, "replication.listen": True},
                   namesrv_addr=names) as master:
        sent(names, 900)
        address = f"127.0.0.1:{int(master.broker_addr.rpartition(':')[2]) + 1}"
        with (
            stock_broker(tmp_path / "stock", names, {
                "brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": address,
                "haSendHeartbeatInterval": 500}) as stock,
            mqcore_up(tmp_path / "slave", {
                **OURS, "broker.id": 2, "replication.role": "slave",
                "replication.master_address": address}, namesrv_addr=names) as slave,
        ):
            first = max(path.name for path in (master.store / "commitlog").iterdir()
                        if path.read_bytes().strip(b"\0"))
            assert int(first) > 0
            wait_until(lambda: alike(master.store, slave.store), "all of the log")
            theirs = stock.home / "store" / "commitlog"
            wait_until(lambda: (theirs / first).exists() and (theirs / first).read_bytes()
                       == (master.store / "commitlog" / first).read_bytes(), "the last file")
            assert min(path.name for path in theirs.iterdir()) == first
    assert verify(slave.store).status == 0
