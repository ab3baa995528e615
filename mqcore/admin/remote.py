"""`mqcore status --broker HOST`: one broker, asked over the wire; a stock one answers too."""
from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from mqcore.admin.shell import units
from mqcore.admin.shell.connection import connection
from mqcore.admin.shell.runner import Output, look
from mqcore.admin.shell.view import Facts, View
from mqcore.broker.settings.model import BrokerSettings
from mqcore.client import AsyncAdmin
from mqcore.client.admin import BrokerStatus

WIDTH = 80
INDENT = 14                      # of the values


def show(broker: str, *, as_json: bool) -> None:
    """Print how the broker at HOST or HOST:PORT is, signed as the context or environment says."""
    look(connection(None, None, None), status, {"address": with_port(broker)}, Output(as_json))


def with_port(host: str) -> str:
    """`host:port`; a host without a port has a broker's usual one."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit() and (name.startswith("[") or ":" not in name):
        return host
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"                              # an IPv6 address
    return f"{host}:{BrokerSettings().listen_port}"


async def status(admin: AsyncAdmin, address: str) -> View:
    """Address, name, version, store, rates and roles of one broker: codes 28 and 26."""
    found = await admin.broker_status(address)
    settings = await admin.broker_config(address)
    document = described(found, settings)
    return View(document, [Facts(list(wrapped(pairs(document))))])


def described(found: BrokerStatus, settings: Mapping[str, str]) -> dict[str, Any]:
    """For `--json`; None for what the broker does not say."""
    values = found.values
    host, _, port = found.address.rpartition(":")
    elected = {key: values[name] for key, name in (
        ("leader", "failoverLeader"), ("epoch", "failoverEpoch"), ("inSync", "failoverInSync"))
        if name in values}
    return {
        "address": host.strip("[]"), "port": int(port),
        "name": settings.get("brokerName"), "cluster": settings.get("brokerClusterName"),
        "id": _number(settings, "brokerId"), "version": found.version,
        "started": units.iso(found.started),
        "store": {
            "path": settings.get("storePathRootDir"),
            "diskRatio": found.disk_ratio if found.disk_ratio >= 0 else None,
            "firstPosition": _number(values, "commitLogMinOffset"),
            "lastPosition": _number(values, "commitLogMaxOffset"),
            "earliestMessage": units.iso(found.earliest_message),
            "dispatchBehindBytes": _number(values, "dispatchBehindBytes"),
        },
        "rates": {"in": found.put_tps, "out": found.get_tps,
                  "inToday": found.put_today, "outToday": found.get_today},
        "role": settings.get("brokerRole"), "replication": values.get("replicationRole") or None,
        "failover": elected or None,
    }


def pairs(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The same for people."""
    store, rates = document["store"], document["rates"]
    yield "address", f"{document['address']} port {document['port']}"
    yield "broker", _joined(document["name"], *(
        f"{key} {document[key]}" for key in ("id", "cluster") if document[key] is not None))
    yield "version", document["version"] or units.UNKNOWN
    yield "up since", document["started"] or units.UNKNOWN
    yield "role", _joined(document["role"], document["replication"])
    if document["failover"]:
        yield "failover", _joined(*(
            f"{key} {value}" for key, value in document["failover"].items()))
    yield "store", store["path"] or units.UNKNOWN
    first, last = store["firstPosition"], store["lastPosition"]
    held = None if first is None or last is None else last - first
    disk = "" if store["diskRatio"] is None else f", disk {store['diskRatio']:.0%} full"
    yield "log", f"{units.size(held)} from position {units.count(first)} on{disk}"
    yield "oldest", store["earliestMessage"] or "no message"
    yield "dispatch", f"{units.size(store['dispatchBehindBytes'])} behind"
    yield "in", f"{units.rate(rates['in'])}, {units.count(rates['inToday'])} today"
    yield "out", f"{units.rate(rates['out'])}, {units.count(rates['outToday'])} today"


def wrapped(lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Values that fit beside their names into WIDTH columns; a long one continues below."""
    for name, text in lines:
        first, *rest = textwrap.wrap(text, WIDTH - INDENT, break_on_hyphens=False) or [""]
        yield f"{name:<{INDENT - 2}}", first
        yield from (("", line) for line in rest)


def _number(values: Mapping[str, str], key: str) -> int | None:
    text = values.get(key, "")
    return int(text) if text.isdecimal() else None


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part) or units.UNKNOWN
