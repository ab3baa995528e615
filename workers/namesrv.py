"""
The name server process: tells clients where topics are, and keeps their key-values.

Reads     registrations of brokers, requests of clients and tools
Owns      its listening sockets, kvConfig.json, runtime.json; shares no memory with anyone
Wakes     no other process
Restarts  with the key-values of its files; brokers register again within one interval (30 s)
"""
from __future__ import annotations

from mqcore.workers.process.inherited import Inherited
from mqcore.workers.serving.namesrv import run_beside


def wanted(inherited: Inherited) -> bool:
    return inherited.embedded_namesrv


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    run_beside(inherited)
