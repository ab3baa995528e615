"""
A pull-serving process: owns the connections that it accepted.

Reads     frames from its sockets; mapped log segments and consume queues; the shared tables
Owns      its connections, held pulls and parked requests
Wakes     writer (`appends`), coordinator (`requests`)
Restarts  empty: its clients connect again; answers for its predecessor's connections are dropped
"""
from __future__ import annotations

from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.serving.pull_serving import PullServing


def live(inherited: Inherited, index: int) -> None:
    """The process, from fork to end."""
    segment, listeners = inherited.segment, inherited.listeners.serving[index]
    kept = inherited.kept_tls.settings
    loop.run(lambda settings: PullServing(settings, segment, index, listeners, kept),
             inherited.settings, segment)
