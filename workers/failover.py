"""
The failover process: takes part in the election of who leads, among the brokers of one name.

Reads     etcd; the end of the log and its epochs; what ha-master knows of the others
Owns      this broker's keys in etcd; its role, the end of its lease, and the members that must have
          a message before it is acknowledged (shared memory)
Wakes     supervisor, ha-master and ha-slave, after a change
Restarts  with what its broker leads in; it asks etcd for the rest
"""
from __future__ import annotations

from mqcore.workers.failover.failover import Failover
from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited


def wanted(inherited: Inherited) -> bool:
    return inherited.settings.failover.enable


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    loop.run(lambda settings: Failover(settings, segment), inherited.settings, segment)
