"""
The dispatcher process: gives every stored record its consume queue entry and its index keys.

Reads     the commit log, from the dispatched position to the published position
Owns      consume queues, key index (deletes their files too), checkpoint
Wakes     pull-serving, one record on `arrivals` for each queue that grew and is waited for
Restarts  at the dispatched position; dispatching a record twice writes the same bytes
"""
from __future__ import annotations

from mqcore.workers.dispatcher.dispatcher import Dispatcher
from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    loop.run(lambda settings: Dispatcher(settings, segment), inherited.settings, segment)
