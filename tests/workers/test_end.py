"""How a broker ends: in order when asked, by itself when its supervisor is gone."""
from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.shm.segment import Segment
from mqcore.wire import command as wire
from mqcore.wire.codes import RequestCode
from tests.support.dice import seed_of_run
from tests.support.mqcore_process import (
    MQCORE,
    START_TIMEOUT_S,
    MqcoreProcess,
    mqcore_up,
    start,
)
from tests.support.stock import free_broker_port, free_port
from tests.support.stretch import Stretch
from tests.support.waiting import wait_until, wait_until_async
from tests.workers.load import QUEUES, TOPIC, Asker, Name, audit, load
from tests.workers.processes import ROLES, by_role, title

SEED = seed_of_run()
STOP_S_MAX = 0.5
TRIES = 4                       # of a stop, on a machine that does much else
STOP_UNDER_LOAD_S_MAX = 5.0
ORPHANS_S_MAX = 5.0


def segment_of(broker: MqcoreProcess) -> Segment:
    """A look into the shared memory of a running broker."""
    return Segment.attach(broker.segment_name())


def send_stop(broker: MqcoreProcess, number: signal.Signals) -> float:
    """Ask the supervisor to stop; seconds until it had. The exit status has to be 0."""
    family = broker.family()
    broker.process.send_signal(number)
    took = wait_until(lambda: broker.process.poll() is not None, f"an end after {number.name}")
    assert broker.process.returncode == 0, broker.tail()
    assert not [pid for pid in family if title(pid)], "a process is left"
    return took


def test_every_process_says_what_it_is(tmp_path: Path) -> None:
    with mqcore_up(tmp_path) as broker:
        roles = by_role(broker)
        assert set(roles) == {"supervisor", *ROLES}
        for role, pid in roles.items():
            comm = Path(f"/proc/{pid}/comm").read_text().strip()
            assert comm == f"mqcore: {role}"[:15]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_broker_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    for attempt in range(TRIES):
        with mqcore_up(tmp_path / str(attempt), program=MQCORE) as broker:
            stretch = Stretch.of(broker.family(), since_start=True).value()
            took = send_stop(broker, number)
        print(f"stopped in {took:.3f} s, stretched {stretch:.1f} times")
        if took <= STOP_S_MAX * stretch:
            return
    pytest.fail(f"none of {TRIES} brokers stopped within {STOP_S_MAX} s of a machine of its own")
    assert not (broker.store / "abort").exists()


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync", "transient-pool"])
def test_a_stop_under_load_keeps_what_was_acknowledged_and_flushes_it(
    tmp_path: Path, flush: str
) -> None:
    print(f"seed {SEED}")

    async def until_stopped() -> tuple[dict[Name, tuple[int, int]], Segment, float]:
        async with load(broker.broker_addr, SEED) as running:
            await running.acknowledged(2000)
            segment = segment_of(broker)
            took = await asyncio.to_thread(send_stop, broker, signal.SIGTERM)
            promises = await running.stop()
            return promises.acknowledged, segment, took

    with mqcore_up(tmp_path, {"store.flush": flush}) as broker:
        promised, segment, took = asyncio.run(until_stopped())
    print(f"stopped in {took:.3f} s")
    assert took <= STOP_UNDER_LOAD_S_MAX
    state = segment.log_state()
    assert state["published"] == state["flushed"] == state["dispatched"] > 0
    assert not (broker.store / "abort").exists()

    with mqcore_up(tmp_path, {"store.flush": flush}) as broker:
        assert "it is cut there" not in broker.tail()

        async def a_little_more() -> None:
            async with load(broker.broker_addr, SEED, first=50) as running:
                await running.acknowledged(100)
                promises = await running.stop()
                audit(broker.broker_addr, promises, others=promised)

        asyncio.run(a_little_more())


def test_a_stop_of_all_processes_at_once_ends_them_in_order(tmp_path: Path) -> None:
    """As service managers do it: SIGTERM to every process of the group."""
    print(f"seed {SEED}")

    async def until_stopped() -> tuple[dict[Name, tuple[int, int]], Segment, float]:
        async with load(broker.broker_addr, SEED) as running:
            await running.acknowledged(1000)
            segment, began = segment_of(broker), time.monotonic()
            for pid in broker.family():
                with contextlib.suppress(ProcessLookupError):    # the first ones end at once
                    os.kill(pid, signal.SIGTERM)
            await wait_until_async(lambda: broker.process.poll() is not None, "an end")
            return (await running.stop()).acknowledged, segment, time.monotonic() - began

    with mqcore_up(tmp_path) as broker:
        promised, segment, took = asyncio.run(until_stopped())
        assert broker.process.returncode == 0, broker.tail()
    print(f"stopped in {took:.3f} s")
    state = segment.log_state()
    assert state["published"] == state["flushed"] == state["dispatched"] > 0, broker.tail()
    assert not (broker.store / "abort").exists()
    assert "is killed" not in broker.tail()

    async def a_little_more() -> None:
        async with load(broker.broker_addr, SEED, first=50) as running:
            await running.acknowledged(100)
            audit(broker.broker_addr, await running.stop(), others=promised)

    with mqcore_up(tmp_path) as broker:
        asyncio.run(a_little_more())


def update_offset(asker: Asker, queue_id: int, offset: int) -> None:
    answer = asker.ask(wire.request(RequestCode.UPDATE_CONSUMER_OFFSET, {
        "consumerGroup": "keeper", "topic": TOPIC, "queueId": str(queue_id),
        "commitOffset": str(offset)}))
    assert answer.code == 0, answer.remark


def query_offset(asker: Asker, queue_id: int) -> int:
    answer = asker.ask(wire.request(RequestCode.QUERY_CONSUMER_OFFSET, {
        "consumerGroup": "keeper", "topic": TOPIC, "queueId": str(queue_id)}))
    assert answer.code == 0, answer.remark
    return int((answer.ext or {})["offset"] or -1)


def test_topics_and_consumer_offsets_outlive_a_restart(tmp_path: Path) -> None:
    async def some(count: int) -> None:
        async with load(broker.broker_addr, SEED) as running:
            await running.acknowledged(count)

    with mqcore_up(tmp_path) as broker:
        asyncio.run(some(200))
        with Asker(broker.broker_addr) as asker:
            for queue_id in range(QUEUES):
                update_offset(asker, queue_id, 7 + queue_id)
        broker.stop()
    topics = json.loads((broker.store / "config" / "topics.json").read_text())
    assert topics["topicConfigTable"][TOPIC]["writeQueueNums"] == QUEUES
    with mqcore_up(tmp_path) as broker, Asker(broker.broker_addr) as asker:
        assert [query_offset(asker, n) for n in range(QUEUES)] == [7 + n for n in range(QUEUES)]
        assert asker.pull(TOPIC, 0, 0).code == 0


def test_children_of_a_killed_supervisor_end_and_the_next_start_loses_nothing(
    tmp_path: Path,
) -> None:
    print(f"seed {SEED}")
    left: set[str] = set()

    async def until_orphans_end() -> dict[Name, tuple[int, int]]:
        async with load(broker.broker_addr, SEED) as running:
            await running.acknowledged(1000)
            family = broker.family()
            left.update(broker.shared_memory())
            broker.process.kill()
            broker.process.wait()
            await wait_until_async(lambda: not any(title(pid) for pid in family),
                                 "the orphans have ended")
            return (await running.stop()).acknowledged

    with mqcore_up(tmp_path) as broker:
        promised = asyncio.run(until_orphans_end())
    assert len(left) == 1
    with mqcore_up(tmp_path) as broker:
        assert not any(Path(path).exists() for path in left), "the stale segment is still there"

        async def more() -> None:
            async with load(broker.broker_addr, SEED, first=50) as running:
                await running.acknowledged(100)
                audit(broker.broker_addr, await running.stop(), others=promised)

        asyncio.run(more())


def test_a_start_waits_for_the_children_of_a_killed_supervisor(tmp_path: Path) -> None:
    async def until_killed() -> dict[Name, tuple[int, int]]:
        async with load(broker.broker_addr, SEED) as running:
            await running.acknowledged(500)
            broker.process.kill()
            return (await running.stop()).acknowledged

    ports: dict[str, object] = {"broker.listen_port": free_broker_port(),
                                "namesrv.listen_port": free_port()}
    with mqcore_up(tmp_path, ports) as broker:
        promised = asyncio.run(until_killed())
        broker.process.wait()
        with mqcore_up(tmp_path, ports) as successor:           # at once, on the same ports

            async def more() -> None:
                async with load(successor.broker_addr, SEED, first=50) as running:
                    await running.acknowledged(100)
                    audit(successor.broker_addr, await running.stop(), others=promised)

            asyncio.run(more())


# -- starts that are refused ----------------------------------------------------------------------


def refused(folder: Path, arguments: list[str]) -> tuple[int, str]:
    """Start a `mqcore` command that has to end by itself: exit status, what it said."""
    folder.mkdir(parents=True, exist_ok=True)
    process = start(arguments, folder)
    try:
        code = process.process.wait(START_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it runs: {process.tail()}") from None
    return code, process.tail().strip()


def shared_names(store: Path) -> list[str]:
    """Shared memory of brokers on this store."""
    digest = hashlib.sha256(os.fsencode(os.path.realpath(store))).hexdigest()[:12]
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"mqcore-{digest}-")]


def set_all(settings: dict[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def own_settings(folder: Path) -> dict[str, object]:
    return {"store.path": folder / "store", "broker.listen_host": "127.0.0.1",
            "broker.advertised_ip": "127.0.0.1", "broker.listen_port": free_broker_port(),
            "namesrv.listen_host": "127.0.0.1", "namesrv.listen_port": free_port()}


def test_a_second_broker_on_one_store_says_so_and_ends(tmp_path: Path) -> None:
    with mqcore_up(tmp_path / "first") as broker:
        before = shared_names(broker.store)
        assert len(before) == 1
        code, said = refused(tmp_path / "second", ["up", *set_all({
            **own_settings(tmp_path), "store.path": broker.store})])
        assert code == 1
        assert said == f"mqcore: the store {broker.store} is in use by another broker"
        assert shared_names(broker.store) == before
        with Asker(broker.broker_addr) as asker:
            assert asker.pull("nothing", 0, 0).code in (17, 24)     # still answers


def main_port(settings: dict[str, object], taken: int) -> None:
    settings["broker.listen_port"] = taken


def fast_port(settings: dict[str, object], taken: int) -> None:
    settings["broker.listen_port"] = taken + 2


def name_server_port(settings: dict[str, object], taken: int) -> None:
    settings["namesrv.listen_port"] = taken


@pytest.mark.parametrize(("choose", "serving"), [
    (main_port, 1), (main_port, 2), (fast_port, 1), (name_server_port, 1)])
def test_a_port_in_use_is_named_and_nothing_is_left(
    tmp_path: Path, choose: Callable[[dict[str, object], int], None], serving: int
) -> None:
    with mqcore_up(tmp_path / "first") as broker:
        taken = int(broker.broker_addr.rpartition(":")[2])
        settings = {**own_settings(tmp_path / "second"), "processes.serving_count": serving}
        choose(settings, taken)
        code, said = refused(tmp_path / "second", ["up", *set_all(settings)])
        assert code == 1
        assert said.startswith(f"mqcore: 127.0.0.1:{taken} (")
        assert "cannot be listened on: Address already in use" in said
        assert "\n" not in said
        assert not shared_names(tmp_path / "second" / "store")


@pytest.mark.parametrize(("given", "words"), [
    ("store.flush=never", ["store.flush", "never", "sync"]),
    ("broker.listen_port=0", ["broker.listen_port", "0"]),
    ("broker.listen_port=many", ["broker.listen_port", "many"]),
    ("store.sise=3", ["store.sise"]),
])
def test_a_wrong_setting_is_named_and_nothing_is_started(
    tmp_path: Path, given: str, words: list[str]
) -> None:
    code, said = refused(tmp_path, ["up", *set_all({"store.path": tmp_path / "store"}),
                                    "--set", given])
    assert code == 2
    assert all(word in said for word in words), said
    assert "Traceback" not in said
    assert not (tmp_path / "store").exists()
    assert not shared_names(tmp_path / "store")


def test_a_wrong_value_in_a_file_is_shown_with_file_key_and_what_was_expected(
    tmp_path: Path,
) -> None:
    config = tmp_path / "bad.toml"
    config.write_text('[store]\nflush = "sometimes"\n')
    code, said = refused(tmp_path, ["broker", "run", "-c", str(config)])
    assert code == 2
    assert all(word in said for word in (str(config), "store.flush", "sometimes", "async")), said


def test_a_stock_broker_conf_is_taken_with_one_warning(tmp_path: Path) -> None:
    port = free_broker_port()
    config = tmp_path / "broker.conf"
    config.write_text("\n".join([
        "brokerClusterName = DefaultCluster", "brokerName = broker-a", "brokerId = 0",
        "deleteWhen = 04", "fileReservedTime = 48", "brokerRole = ASYNC_MASTER",
        "useReentrantLockWhenPutMessage = true", "sendMessageThreadPoolNums = 16",
        "flushDiskType = SYNC_FLUSH", f"listenPort = {port}", "brokerIP1 = 127.0.0.1",
        f"storePathRootDir = {tmp_path / 'store'}", "mapedFileSizeCommitLog = 67108864", ""]))
    process = start(["broker", "run", "-c", str(config)], tmp_path, MQCORE)
    try:
        wait_until(lambda: "mqcore ready" in process.tail(), "a start")
        assert f"broker=127.0.0.1:{port}" in process.tail()
        assert "flush=sync" in process.tail()
        warnings = [line for line in process.tail().splitlines()
                    if "WARNING" in line and "every peer may do everything" not in line]
        assert len(warnings) == 1, warnings
        assert all(key in warnings[0] for key in (
            "broker.conf", "useReentrantLockWhenPutMessage", "sendMessageThreadPoolNums"))
    finally:
        process.stop()
