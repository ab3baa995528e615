"""
The coordinator process: topics, groups, offsets, clients, locks, administration, registration.

Reads     `requests` from every serving process; the store, for look-ups
Owns      topics.json, subscriptionGroup.json, consumerOffset.json, client tables, queue locks; the
          topic, group and subscription tables in shared memory
Wakes     pull-serving (`answers`), writer (its own `appends`)
Restarts  from its files; pull-serving repeats the last heartbeat of each client to it
"""
from __future__ import annotations

import asyncio

from mqcore.layout import WORKER_RUNNING, WORKER_STOPPED
from mqcore.participants import COORDINATOR
from mqcore.workers.coordinator.coordinator import Coordinator
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.process.loop import leave


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    coordinator = Coordinator(inherited)
    asyncio.run(coordinator.run(
        lambda: segment.set_state(COORDINATOR.slot, WORKER_RUNNING)))
    segment.set_state(COORDINATOR.slot, WORKER_STOPPED)
    leave(segment)
