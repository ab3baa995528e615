"""
Stock brokers and ours that follow one another, each on a host of its own: cables are pulled, and
packets go one way. No end is told.
"""
from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from mqcore.client import SendStatus
from tests.interop.test_chains import begin, same_everywhere
from tests.interop.test_replication import OURS, SEED, sent, settled, stock_broker
from tests.replication.faults.namespaces import Hosts, hosts
from tests.replication.stores import hold_alike
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up
from tests.support.nursery import nursery
from tests.support.stock import require_stock

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]
COUNT = 540                           # messages: more than a file of the log
AT_ONCE = 3
PORT = 21_911                         # the same on each host
CLIENTS = "clients"
SILENCE_MS = 2_500                    # then an end gives a link up; stock may say nothing for 1 s
APART_S = (0.5, 3.5)
WAYS = ("unplugged", "deaf", "mute")  # of the one that follows


@contextlib.contextmanager
def broker(kind: str, folder: Path, net: Hosts, host: str, names: str,
           master: str | None) -> Iterator[Path]:
    """On that host, behind whom `master` names, if anybody; its store."""
    ip = net.address(host)
    number = net.names.index(host) - 1
    after = None if master is None else f"{net.address(master)}:{PORT + 1}"
    if kind == "ours":
        role = {"replication.role": "sync-master"} if after is None else {
            "replication.role": "slave", "replication.master_address": after}
        with mqcore_up(folder, {
                **OURS, **role, "replication.listen": True, "broker.id": number,
                "replication.housekeeping_interval_ms": SILENCE_MS,
                "replication.heartbeat_interval_ms": SILENCE_MS // 4,
                "broker.listen_host": ip, "broker.advertised_ip": ip, "broker.listen_port": PORT},
                namesrv_addr=names, program=net.program(host)) as running:
            yield running.store
        return
    role = {"brokerRole": "SYNC_MASTER"} if after is None else {
        "brokerRole": "SLAVE", "haMasterAddress": after}
    with stock_broker(folder, names, {
            **role, "brokerId": number, "haHousekeepingInterval": SILENCE_MS,
            "haSendHeartbeatInterval": SILENCE_MS // 4},
            PORT, ip=ip, program=net.within(host)) as stock:
        yield stock.home / "store"


def apart(net: Hosts, way: str, before: str, behind: str) -> Callable[[], None]:
    """From now on, until what this returns is called."""
    if way == "unplugged":
        net.unplug(behind)
        return partial(net.plug, behind)
    host, to = (behind, before) if way == "deaf" else (before, behind)
    net.deafen(host, to)
    return partial(net.hear, host, to)


def cuts(net: Hosts, chain: list[str], names: str) -> list[SendStatus | str]:
    """
    Every link of the chain fails in every way, one after the other, beside messages: what became
    of these.
    """
    dice = random.Random(SEED)
    todo = [(way, *link) for way in WAYS for link in pairwise(chain)]
    dice.shuffle(todo)
    found: list[SendStatus | str] = []
    for fault in todo:
        found += sent(names, COUNT // len(todo))
        mend = apart(net, *fault)
        until = time.monotonic() + dice.choice(APART_S)
        while time.monotonic() < until:
            found += sent(names, AT_ONCE)
        mend()
    return found


def follow(kinds: tuple[str, ...], net: Hosts, chain: list[str], folder: Path) -> None:
    with contextlib.ExitStack() as life:
        names = life.enter_context(mqcore_namesrv(
            folder / "names", ip=net.address(CLIENTS), program=net.program(CLIENTS))).namesrv_addr
        stores = [life.enter_context(broker(kind, folder / host, net, host, names, before))
                  for kind, host, before in zip(kinds, chain, [None, *chain], strict=False)]
        begin(names, stores)
        assert SendStatus.FLUSH_SLAVE_TIMEOUT in cuts(net, chain, names)
        settled(names, SendStatus.SEND_OK)
        same_everywhere(stores)
    hold_alike(dict(zip(chain, stores, strict=True)))


@pytest.mark.parametrize("kinds", [
    ("stock", "ours"), ("ours", "stock"), ("ours", "ours", "stock")], ids="-".join)
def test_hosts_that_are_apart_for_a_while_have_one_log_and_its_queues(
        tmp_path: Path, kinds: tuple[str, ...]) -> None:
    print(f"MQCORE_TEST_SEED={SEED}")
    require_stock()
    chain = [f"host{number}" for number in range(len(kinds))]
    with hosts(CLIENTS, *chain) as net:
        nursery()                              # it begins here, and not on a host
        net.run_in(CLIENTS, partial(follow, kinds, net, chain, tmp_path))
