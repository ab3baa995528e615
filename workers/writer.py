"""
The writer process: the only one that appends to the commit log.

Reads     one `appends` ring for each process that stores messages
Owns      commit log segments (deletes them too), the queues' next offsets and lives, published
          and flushed positions, queueRestarts.json
Wakes     dispatcher, and who appended, through `append_results`
Restarts  finds the log's end behind the published position; answers what was in flight, once
"""
from __future__ import annotations

from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.writer.writer import Writer


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    loop.run(lambda settings: Writer(settings, segment), inherited.settings, segment)
