"""
The ha-slave process: follows the commit log of a master, a stock one too.

Reads     what its master sends; where the log ends
Owns      its connection
Wakes     writer, through `appends`: whole records as the master has placed them
Restarts  from where the log ends, which it tells the master
"""
from __future__ import annotations

from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.replication.ha_slave import HaSlave


def wanted(inherited: Inherited) -> bool:
    return inherited.settings.is_slave


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    loop.run(lambda settings: HaSlave(settings, segment, inherited.rejoin_from,
                                      inherited.kept_tls.settings),
             inherited.settings, segment)
