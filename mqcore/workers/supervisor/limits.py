"""
What the machine must give a broker, looked at before anything is started: memory for the pool,
address space for shared memory and the log. Descriptors: descriptors.py.
"""
from __future__ import annotations

import os
import resource

from msgspec.structs import replace

from mqcore.broker.settings.model import ProcessSettings, Settings
from mqcore.participants import SERVING
from mqcore.shm.memory import MIB, memory_bytes, mib

BASE_BYTES = 256 << 20           # of address space: the interpreter, its modules, threads, buffers
SEGMENTS_MIN = 2                 # of the log that a process has mapped at a time
SMALL_BYTES = 384 * MIB          # of memory: a run with the usual tables may need so much
SMALL_PART = 4                   # of the usual room is left where there is less
OF_MEMORY = ("topic_count_max", "queue_count_max", "group_count_max", "subscription_count_max",
             "connection_memory_bytes")
FIRST_SERVING_BYTES = 256 * MIB  # of memory: for a run with one serving process ...
SERVING_BYTES = 64 * MIB         # ... and for each further one: its rings, and itself


class LimitError(Exception):
    """The machine does not give what the settings need; the text is one sentence."""


def fitted(settings: Settings) -> Settings:
    """Less room in place of the usual one, where memory is small; other values stay."""
    if memory_bytes() >= SMALL_BYTES:
        return settings
    usual = ProcessSettings()
    return replace(settings, processes=replace(settings.processes, **{
        key: getattr(usual, key) // SMALL_PART for key in OF_MEMORY
        if getattr(settings.processes, key) == getattr(usual, key)}))


def serving_count(settings: Settings) -> int:
    """
    As set, or one for two processors, as far as there is memory for them; and the one of POP and of
    gRPC's clients, the last, if they are served.
    """
    remoting = settings.processes.serving_count or max(1, min(
        (os.cpu_count() or 1) // 2, SERVING.count_max - settings.serves_pop,
        1 + (memory_bytes() - FIRST_SERVING_BYTES) // SERVING_BYTES))
    return remoting + settings.serves_pop


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
