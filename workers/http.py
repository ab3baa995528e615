"""
The http process: answers scrapes and probes, for Prometheus and for service managers.

Reads     shared memory, /proc, consumerOffset.json, the store for the ages of messages
Owns      its listening socket and connections
Wakes     no process, and waits for none: it answers while another process hangs
Restarts  with its port opened again
"""
from __future__ import annotations

from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.serving.http import Http


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    loop.run(lambda settings: Http(settings, segment), inherited.settings, segment)
