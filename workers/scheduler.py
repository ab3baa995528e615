"""
The scheduler process: delivers delayed messages to their real topics when they are due.

Reads     the queues of SCHEDULE_TOPIC_XXXX and the records that they point at
Owns      how far each delay level is delivered (shared memory), delayOffset.json
Wakes     writer, one record on `appends` for each delivery
Restarts  from shared memory: waits for the results of what its predecessor appended, and searches
          the log for what no result says; a new run does the same from delayOffset.json on
"""
from __future__ import annotations

from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.scheduling.scheduler import Scheduler


def wanted(inherited: Inherited) -> bool:
    """A slave's delayed messages are delivered by its master, and come with its log."""
    return not inherited.settings.is_slave


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    loop.run(lambda settings: Scheduler(settings, segment), inherited.settings, segment)
