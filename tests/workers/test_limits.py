"""What the machine cannot give is one sentence at the start, with the number that is there."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import Settings
from mqcore.client import Producer
from mqcore.workers.supervisor import limits
from tests.support.control_group import control_group
from tests.support.mqcore_process import MQCORE, mqcore_up, start
from tests.support.stock import free_broker_port, free_port

MIB = 1 << 20


@pytest.mark.parametrize(("settings", "within", "said"), [
    (["store.flush=transient-pool", "store.pool_bytes=1099511627776"], [],
     "store.pool_bytes = 1099511627776: expected at most "),
    ([], ["prlimit", "--as=1073741824"], "RLIMIT_AS allows 1024 MiB of address space"),
    (["store.segment_size_bytes=8388608"], ["prlimit", "--as=300000000"], "RLIMIT_AS"),
], ids=["pool", "segments", "shared memory"])
def test_a_limit_of_the_machine_is_one_sentence(
    settings: list[str], within: list[str], said: str, tmp_path: Path,
) -> None:
    words = [word for one in (
        f"store.path={tmp_path}/store", f"broker.listen_port={free_broker_port()}",
        f"namesrv.listen_port={free_port()}", *settings) for word in ("--set", one)]
    one = start(["up", *words], tmp_path, [*within, *MQCORE])

    assert one.process.wait(60) == 1, one.tail()
    (line,) = one.tail().splitlines()
    assert said in line


@pytest.mark.parametrize("kind", ["auto", "memfd"])
def test_a_broker_starts_and_stores_in_256_mib(kind: str, tmp_path: Path) -> None:
    with control_group(256 * MIB) as within, mqcore_up(
            tmp_path, {"processes.shared_memory": kind}, program=[*within, *MQCORE]) as broker:
        with Producer("p", namesrv=broker.namesrv_addr) as producer:
            for number in range(100):
                producer.send("small", os.urandom(1 << 20) if number % 10 == 0 else b"one")
        assert broker.tail().count("mqcore ready") == 1, broker.tail()


@pytest.mark.parametrize(("mib", "topics", "subscriptions", "connection_mib"), [
    (255, 4_096, 16_384, 64), (383, 4_096, 16_384, 64), (384, 16_384, 65_536, 256),
    (65_536, 16_384, 65_536, 256)])
def test_tables_are_as_large_as_memory_lets_them_be(
    mib: int, topics: int, subscriptions: int, connection_mib: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "memory_bytes", lambda: mib * MIB)

    found = limits.fitted(load(None, {})).processes

    assert (found.topic_count_max, found.subscription_count_max) == (topics, subscriptions)
    assert found.connection_memory_bytes == connection_mib * MIB


def test_a_table_s_size_that_was_set_stays_where_there_is_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "memory_bytes", lambda: 256 * MIB)

    found = limits.fitted(load(None, {}, ["processes.topic_count_max=9000"])).processes

    assert (found.topic_count_max, found.group_count_max) == (9_000, 4_096)


@pytest.mark.parametrize(("mib", "cores", "count"), [
    (256, 64, 1), (319, 64, 1), (320, 64, 2), (512, 64, 5), (65_536, 64, 16), (65_536, 1, 1),
    (65_536, 8, 4), (128, 8, 1)])
def test_serving_processes_are_as_many_as_cores_and_memory_let_them_be(
    mib: int, cores: int, count: int, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "memory_bytes", lambda: mib * MIB)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)

    assert limits.serving_count(Settings()) == count
