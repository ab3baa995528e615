"""A master, its slave and a name server as processes, and one word to each."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqcore.wire import fastjson
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.wire_live.peer import Peer

NAME = "mqcore-a"                 # of both brokers
QUICK = 200                       # ms between two questions of the slave


@dataclass
class Pair:
    names: MqcoreProcess
    master: MqcoreProcess
    slave: MqcoreProcess


@contextlib.contextmanager
def slave_up(
    folder: Path, namesrv_addr: str, settings: Mapping[str, object] | None = None
) -> Iterator[MqcoreProcess]:
    """A slave of the broker that the name server knows as NAME."""
    with mqcore_up(folder, {
        "replication.role": "slave", "broker.id": 1, "broker.name": NAME,
        "replication.metadata_interval_ms": QUICK, **(settings or {}),
    }, namesrv_addr=namesrv_addr) as running:
        yield running


@contextlib.contextmanager
def pair(
    folder: Path, master: Mapping[str, object] | None = None,
    slave: Mapping[str, object] | None = None,
) -> Iterator[Pair]:
    """Both brokers and a name server of their own; settings on top of those that make them that."""
    with (
        mqcore_namesrv(folder / "names") as names,
        mqcore_up(folder / "master", {
            "broker.name": NAME, "replication.listen": True, **(master or {}),
        }, namesrv_addr=names.namesrv_addr) as first,
        slave_up(folder / "slave", names.namesrv_addr, slave) as second,
    ):
        yield Pair(names, first, second)


def table(address: str, code: int) -> Any:
    """A whole table of a broker: 21, 43, 45 or 201."""
    with Peer(address) as peer:
        return fastjson.loads(peer.ask(code).body)


def addresses(names: MqcoreProcess, name: str = NAME) -> dict[str, str]:
    """Broker id -> address of one name's brokers, as a name server hands them out."""
    return addresses_at(names.namesrv_addr, name)


def addresses_at(namesrv_addr: str, name: str = NAME) -> dict[str, str]:
    with Peer(namesrv_addr) as peer:
        known = fastjson.loads(peer.ask(106).body)["brokerAddrTable"]
    return {str(number): address
            for number, address in known.get(name, {}).get("brokerAddrs", {}).items()}
