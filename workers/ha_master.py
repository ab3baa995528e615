"""
The ha-master process: sends the commit log to slaves, of this broker's name, stock ones too. A
slave has one, too, when others follow the log there (a chain).

Reads     the commit log below the published position, its epochs; what slaves report
Owns      its connections; how far slaves have the log, whether there are any, and which epochs they
          were told (shared memory)
Wakes     writer, when slaves have more and acknowledgements wait for that
Restarts  with nothing: slaves come again and say where they are
"""
from __future__ import annotations

import os

from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.replication.ha_master import HaMaster


def wanted(inherited: Inherited) -> bool:
    return inherited.settings.hands_log_on


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    listeners = [os.dup(listener.fileno()) for listener in inherited.listeners.replication]
    loop.run(lambda settings: HaMaster(settings, segment, listeners,
                                       inherited.kept_tls.settings), inherited.settings, segment)
