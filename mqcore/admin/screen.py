"""What `mqcore up` shows to a person below its line `mqcore ready`: what runs, how to try it."""
from __future__ import annotations

import os
import textwrap
from typing import Any

from mqcore.admin.status import describe
from mqcore.broker.settings.exposure import EVERY_ADDRESS, OPEN_WITH, is_loopback
from mqcore.broker.settings.model import Settings
from mqcore.shm.segment import stale_segments

WIDTH = 100
INDENT = 12
DEFAULT_NAMESRV = "127.0.0.1:9876"
FLUSH = {
    "async": "acknowledged when it is in the files: survives a kill, not a power cut",
    "sync": "acknowledged when it is on the disk: survives a power cut",
    "transient-pool": "acknowledged when it is in memory: a kill may lose the last moments",
}

TOGETHER = "\N{NO-BREAK SPACE}"     # where a line is not to be broken


def own_run() -> dict[str, Any]:
    """What the shared memory of this process's own broker says; {} when there is none."""
    for name in stale_segments("mqcore-"):
        if name.endswith(f"-{os.getpid()}"):
            return describe(name) or {}
    return {}


def screen(settings: Settings, run: dict[str, Any]) -> str:
    """Several lines, each at most WIDTH characters where names allow it."""
    names = settings.broker.namesrv_addrs
    local = names[0] if names else ""
    fast = f", fast port {settings.fast_port}" if settings.fast_port is not None else ""
    processes = ", ".join(
        f"{one['role']}{TOGETHER}{one['pid']}" for one in run.get("processes", []))
    parts = [
        ("broker", f"{settings.advertised_addr}{fast}; name server {';'.join(names) or 'none'}"),
        ("store", f"{settings.store.path}"),
        ("flush", f"{settings.store.flush}: {FLUSH[settings.store.flush]}"),
        ("processes", processes or "unknown"),
    ]
    if is_loopback(settings.broker.listen_host):
        parts.insert(1, ("open to", f"programs on this machine; other hosts: set {OPEN_WITH}"))
    lines = [line for name, text in parts for line in _part(name, text)]
    if local:
        lines += ["", *_commands(local), *_snippets(_for_clients(settings, local))]
    return "\n".join([*lines, "", "  stop        Ctrl-C", ""])


def _part(name: str, text: str) -> list[str]:
    wrapped = textwrap.wrap(text, WIDTH - INDENT - 2, break_long_words=False,
                            break_on_hyphens=False)
    first, *rest = [line.replace(TOGETHER, " ") for line in wrapped] or [""]
    return [f"  {name:<{INDENT}}{first}", *(f"  {'':<{INDENT}}{line}" for line in rest)]


def _commands(namesrv: str) -> list[str]:
    """The first three commands to try; the default name server needs no option."""
    where = "" if namesrv == DEFAULT_NAMESRV else f" -n {namesrv}"
    return [
        f"  try it      mqcore message send{where} -t orders -p 'hello'",
        f"              mqcore message consume{where} -t orders -g me --count 1",
        "              mqcore status",
    ]


def _snippets(namesrv: str) -> list[str]:
    return [
        f'  Java        producer.setNamesrvAddr("{namesrv}");',
        f'  Go          producer.WithNameServer([]string{{"{namesrv}"}})',
    ]


def _for_clients(settings: Settings, namesrv: str) -> str:
    """The name server as other machines reach it, when it is ours and listens to them."""
    if settings.namesrv.embedded and settings.namesrv.listen_host in EVERY_ADDRESS:
        host = settings.advertised_addr.rpartition(":")[0]
        return f"{host}:{settings.namesrv.listen_port}"
    return namesrv
