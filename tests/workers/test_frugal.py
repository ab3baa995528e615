"""What a broker costs: no Python objects on the hot paths, nothing when idle, little memory."""
from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mqcore.bench.control import Target, find_target
from mqcore.bench.load import ConsumeOptions, ProduceOptions, Span, consume, produce
from mqcore.participants import DISPATCHER, SERVING, WRITER
from mqcore.shm.allocations import figures
from mqcore.thread_times import processor_ns
from tests.support.mqcore_process import MQCORE, MqcoreProcess, mqcore_up, start
from tests.support.stock import free_broker_port
from tests.support.waiting import wait_until
from tests.workers.processes import by_role
from tests.workers.test_end import segment_of

MESSAGES = int(os.environ.get("MQCORE_TEST_MESSAGES", "1000000"))
MESSAGES_AN_OBJECT = 100
HOT = {"writer": WRITER.slot, "dispatcher": DISPATCHER.slot, "pull-serving-0": SERVING.slot}
TURNS_A_SECOND_MAX = 2
IDLE_S = 5.0
IDLE_SHARE_MAX = 0.01              # of one core, all processes together
IDLE_PRIVATE_BYTES_MAX = 150 << 20
GROWTH_BYTES_MAX = 8 << 20
START_S_MAX = 0.8                  # of a machine that has nothing else to do; of another ...
START_IMPORTS_MAX = 2.0            # ... as many times as long as it takes to load the code
STARTS_MAX = 8


def send_and_pull(target: Target, count: int) -> float:
    """Push `count` messages in, pull as many out; seconds that it took."""
    began = time.monotonic()
    sent = produce(target, ProduceOptions(span=Span(count=count), connections=4, depth=32, size=128,
                                          keys=True))
    assert (sent.errors, sent.lost) == (0, 0), sent.first_error
    assert sent.items >= count
    pulled = consume(target, ConsumeOptions(count=count, connections=4, depth=4, batch=32))
    assert (pulled.errors, pulled.lost) == (0, 0), pulled.first_error
    assert pulled.items >= count
    return time.monotonic() - began


def private_bytes(broker: MqcoreProcess) -> int:
    """Memory of all processes that is backed by no file: each page shared among who has it."""
    total = 0
    for pid in broker.family():
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                total += int(line.split()[1]) << 10
    return total


def cpu_ns(broker: MqcoreProcess) -> int:
    """Processor time of all threads of all processes so far."""
    return processor_ns(*broker.family())[0]


@pytest.mark.slow
def test_a_million_messages_make_no_python_objects_and_leave_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQCORE_COUNT_ALLOCATIONS", "1")
    with mqcore_up(tmp_path, {"store.segment_size_bytes": 1 << 30}, program=MQCORE) as broker:
        segment = segment_of(broker)
        target = find_target("frugal", broker=broker.broker_addr, namesrv=None, queues=8,
                             create=True)
        send_and_pull(target, MESSAGES // 5)       # connections, files and buffers are there now
        private = private_bytes(broker)
        before = {role: figures(segment, slot) for role, slot in HOT.items()}
        assert all(allocations > 0 for _, allocations in before.values()), "nothing is counted"
        seconds = send_and_pull(target, MESSAGES)
        wait_until(lambda: segment.log_state()["dispatched"] == segment.log_state()["published"],
                   "all is dispatched")
        objects = turns = 0
        for role, slot in HOT.items():
            after = figures(segment, slot)
            print(f"{role}: {after[1] - before[role][1]} objects, "
                  f"{after[0] - before[role][0]} turns in {seconds:.1f} s")
            turns += after[0] - before[role][0]
            objects += after[1] - before[role][1]
        growth = private_bytes(broker) - private
        print(f"private: {private / 2**20:.1f} MiB, {growth / 2**20:.1f} MiB more after "
              f"{MESSAGES} messages")
        assert objects < MESSAGES / MESSAGES_AN_OBJECT
        # free lists are not counted: but only a process that returns to the interpreter uses them
        assert turns <= len(HOT) * (TURNS_A_SECOND_MAX * seconds + 2)
        assert growth <= GROWTH_BYTES_MAX


def test_an_idle_broker_costs_no_processor_time_and_little_memory(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, program=MQCORE) as broker:
        names = by_role(broker)
        cpu, began = cpu_ns(broker), time.monotonic()
        wait_until(lambda: time.monotonic() - began >= IDLE_S, "the time of the measurement",
                   IDLE_S + 1)
        share = (cpu_ns(broker) - cpu) / 1e9 / (time.monotonic() - began)
        private = private_bytes(broker)
        assert by_role(broker) == names
    print(f"idle: {share:.2%} of a core, {private / 2**20:.1f} MiB private")
    assert share < IDLE_SHARE_MAX
    assert private <= IDLE_PRIVATE_BYTES_MAX


def seconds_to_first_connection(folder: Path) -> float:
    port = free_broker_port()
    folder.mkdir()
    began = time.monotonic()
    process = start(["broker", "run", *(word for setting in (
        f"store.path={folder / 'store'}", "broker.listen_host=127.0.0.1",
        "broker.advertised_ip=127.0.0.1", f"broker.listen_port={port}",
    ) for word in ("--set", setting))], folder, MQCORE)

    def connects() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(connects, "the first connection")
        connected = time.monotonic() - began
        wait_until(lambda: "mqcore ready" in process.tail(), "the line that it is ready")
        print(f"first connection after {connected:.3f} s, ready after "
              f"{time.monotonic() - began:.3f} s")
        return time.monotonic() - began
    finally:
        process.process.send_signal(signal.SIGTERM)
        process.process.wait(5)


def seconds_to_load_the_code() -> float:
    began = time.monotonic()
    code = "import mqcore.admin.cli, mqcore.workers.supervisor.supervisor"
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.monotonic() - began


@pytest.mark.slow
def test_an_empty_broker_is_ready_soon(tmp_path: Path) -> None:
    """By the time that loading takes just before; the first start that is in time counts."""
    seen = []
    for number in range(STARTS_MAX):
        load_s = seconds_to_load_the_code()
        start_s = seconds_to_first_connection(tmp_path / str(number))
        seen.append(f"loaded in {load_s:.3f} s, ready in {start_s:.3f} s")
        print(seen[-1])
        if start_s <= max(START_S_MAX, START_IMPORTS_MAX * load_s):
            return
    raise AssertionError(seen)
