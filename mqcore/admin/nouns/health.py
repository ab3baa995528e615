"""`mqcore cluster health`: name servers, brokers, masters, slaves and disks in one look."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import click
from msgspec.structs import replace

from mqcore.admin.nouns.check import Finding, Level, disk_finding, finds, level_of
from mqcore.admin.shell import units
from mqcore.admin.shell.durations import Duration
from mqcore.client import AsyncAdmin, RocketMQError
from mqcore.client.admin import AdminError, BrokerStatus, Cluster, Unreachable
from mqcore.wire.numbers import whole_number

BEHIND_BYTES = 64 << 20         # of the log without queue entries: /readyz fails from there on
SLAVE_BEHIND_BYTES = 256 << 20  # a stock master counts no slave that is further behind
DISK_WARN, DISK_CRITICAL = 75.0, 90.0
WAIT_MAX_S = 86_400.0
AGAIN_S = 1.0                   # between two looks

Known = dict[str, frozenset[str]]       # broker name -> its addresses, as one name server has them


@click.command("health")
@click.option("--wait", "wait_s", type=Duration(0.1, WAIT_MAX_S),
              help="Look again every second until all is well, at most so long.")
@finds
async def health_command(admin: AsyncAdmin, wait_s: float | None) -> Sequence[Finding]:
    """
    Whether anything is wrong: name servers that differ, brokers, masters, slaves, disks.

    The status is 0 when every finding is ok, else 10.
    """
    until = time.monotonic() + (wait_s or 0.0)
    while True:
        left_s = until - time.monotonic()
        try:
            found = await _look(admin)
        except (RocketMQError, OSError):
            if left_s <= 0:
                raise
        else:
            if left_s <= 0 or not any(one.level for one in found):
                return found
        await asyncio.sleep(min(AGAIN_S, max(0.0, left_s)))


async def _look(admin: AsyncAdmin) -> list[Finding]:
    clusters = await admin.clusters()
    servers, (statuses, silent) = await asyncio.gather(
        _name_servers(admin), _statuses(admin, clusters))
    found = [*servers, *_masters(clusters)]
    for one in statuses:
        found += _of_broker(one)
    found += _slaves(statuses)
    found += [Finding(f"broker {one.name} {one.address}", Level.CRITICAL, None,
                      f"no answer: {one.error}") for one in silent]
    return found


async def _statuses(
    admin: AsyncAdmin, clusters: Sequence[Cluster],
) -> tuple[Sequence[BrokerStatus], Sequence[Unreachable]]:
    """Brokers that answer, and those that do not; that none answers is a finding, too."""
    targets = [(broker.broker_name, address) for cluster in clusters for broker in cluster.brokers
               for address in broker.addresses.values()]
    try:
        found = await admin.cluster_status()
    except AdminError as error:
        return (), error.failures
    except RocketMQError as error:
        if len(targets) != 1:                   # of several, AdminError names each
            raise
        ((name, address),) = targets
        return (), (Unreachable(name, address, error),)
    return found.items, found.unreachable


async def _name_servers(admin: AsyncAdmin) -> list[Finding]:
    """Each name server is asked by itself, as clients ask any one."""
    addresses = list(dict.fromkeys(admin.config.name_servers))
    answers = await asyncio.gather(*(_known(admin, address) for address in addresses))
    known = [one for one in answers if not isinstance(one, RocketMQError)]
    everything = {name: frozenset().union(*(one.get(name, frozenset()) for one in known))
                  for one in known for name in one}
    found = []
    for address, answer in zip(addresses, answers, strict=True):
        name = f"name server {address}"
        if isinstance(answer, RocketMQError):
            found.append(Finding(name, Level.CRITICAL, None, f"no answer: {answer}"))
            continue
        lacking = sorted(broker for broker, places in everything.items()
                         if answer.get(broker, frozenset()) != places)
        found.append(Finding(
            name, Level.WARNING if lacking else Level.OK, len(answer),
            f"does not know all of broker {', '.join(lacking)}, as another one does" if lacking
            else f"knows {len(answer)} brokers"))
    return found


async def _known(admin: AsyncAdmin, address: str) -> Known | RocketMQError:
    try:
        async with type(admin)(address, config=admin.config, timeout=admin.timeout,
                               time_limit=admin.time_limit) as one:
            return {broker.broker_name: frozenset(broker.addresses.values())
                    for cluster in await one.clusters() for broker in cluster.brokers}
    except RocketMQError as error:
        return error


def _masters(clusters: Sequence[Cluster]) -> Iterator[Finding]:
    brokers = [broker for cluster in clusters for broker in cluster.brokers]
    if not brokers:
        yield Finding("brokers", Level.CRITICAL, 0, "none is registered")
    for broker in brokers:
        if 0 not in broker.addresses:
            yield Finding(f"broker {broker.broker_name}", Level.CRITICAL, None,
                          "has no master: it takes no messages")


def _of_broker(one: BrokerStatus) -> Iterator[Finding]:
    name = f"broker {one.broker_name} id {one.broker_id}"
    yield Finding(name, Level.OK, None, f"answers, {one.version}")
    yield replace(disk_finding(one, DISK_WARN, DISK_CRITICAL),
                  name=f"disk of {one.broker_name} id {one.broker_id}")
    behind = whole_number(one.values.get("dispatchBehindBytes", ""))
    if behind is not None and behind >= BEHIND_BYTES:
        yield Finding(name, Level.CRITICAL, behind,
                      f"{units.size(behind)} of the log are not in the queues yet")


def _slaves(statuses: Sequence[BrokerStatus]) -> Iterator[Finding]:
    """By the ends of the logs, which stock brokers tell as well."""
    ends = {(one.broker_name, one.broker_id): whole_number(one.values.get("commitLogMaxOffset", ""))
            for one in statuses}
    for (name, broker_id), end in ends.items():
        of_master = ends.get((name, 0))
        if broker_id and end is not None and of_master is not None:
            behind = max(0, of_master - end)
            yield Finding(f"slave {name} id {broker_id}",
                          level_of(behind, SLAVE_BEHIND_BYTES, float("inf")), behind,
                          f"{units.size(behind)} behind its master")
