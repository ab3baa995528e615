"""
What the machine must give a broker, looked at before anything is started: memory for the pool,
address space for shared memory and the log. Descriptors: descriptors.py.
"""
from __future__ import annotations

import resource

from mqcore.broker.settings.model import Settings
from mqcore.shm.memory import memory_bytes, mib

BASE_BYTES = 256 << 20           # of address space: the interpreter, its modules, threads, buffers
SEGMENTS_MIN = 2                 # of the log that a process has mapped at a time


class LimitError(Exception):
    """The machine does not give what the settings need; the text is one sentence."""


def check_memory(settings: Settings) -> None:
    """Raises LimitError when the transient pool is too large."""
    store, most = settings.store, memory_bytes() // 2
    if store.flush == "transient-pool" and store.pool_bytes > most:
        raise LimitError(f"store.pool_bytes = {store.pool_bytes}: expected at most {most}, half of "
                         "the memory that there is")


def check_address_space(settings: Settings, shared_bytes: int) -> None:
    """Raises LimitError when a process could not map what it works with."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = BASE_BYTES + shared_bytes + SEGMENTS_MIN * settings.store.segment_size_bytes
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise LimitError(
            f"RLIMIT_AS allows {mib(limit)} of address space in a process (ulimit -v): expected at "
            f"least {mib(needed)}, and more for a log of many segments")
