"""
A pull-serving process: owns the connections that it accepted.

Reads     frames from its sockets; mapped log segments and consume queues; the shared tables
Owns      its connections, held pulls and parked requests
Wakes     writer (`appends`), coordinator (`requests`)
Restarts  empty: its clients connect again; answers for its predecessor's connections are dropped
"""
from __future__ import annotations

import logging
import os
import resource
import socket

from mqcore.broker.settings import Settings
from mqcore.net.serving import ServingLoop
from mqcore.shm.segment import Segment
from mqcore.workers.layout import SLOT_SERVING, StoreFiles, memory_bytes

REASONS = {
    1: "its frame length is {detail}, expected 4 to 16777212",
    2: "its header length {detail} is longer than its frame",
    3: "its header codec is {detail}, expected 0 (JSON) or 1 (ROCKETMQ)",
    4: "its header of {detail} bytes cannot be read",
    6: "there are too many connections",
    7: "there is no memory for {detail} bytes",
    9: "{detail} bytes of answers wait that it does not read",
}

RESERVED_FDS = 4096 + 256        # consume queue files, segments, listeners, bells

log = logging.getLogger("mqcore.pull-serving")


def descriptors() -> int:
    """How many descriptors this process may have, after asking for as many as are allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


class PullServing:
    def __init__(self, settings: Settings, segment: Segment, index: int,
                 listeners: list[tuple[socket.socket, bool]]) -> None:
        self.name = f"pull-serving-{index}"
        self.slot = SLOT_SERVING + index
        self._settings = settings
        self._segment = segment
        self._index = index
        self._listeners = listeners

    def start(self) -> None:
        broker, store = self._settings.broker, self._settings.store
        processes = self._settings.processes
        files = StoreFiles(self._settings.store_root)
        self._loop = ServingLoop(
            self._segment, self._index, self._listeners, self._settings.log_folders.text(),
            os.fsencode(files.queues), store_address=(broker.advertised_ip, broker.listen_port),
            cluster=broker.cluster, region=broker.region_id, trace_on=broker.trace_on,
            file_entries=store.queue_file_entry_count,
            connection_max=min(processes.connection_count_max, descriptors() - RESERVED_FDS),
            held_max=processes.held_pull_count_max, idle_ms_max=processes.connection_idle_ms,
            body_bytes_max=store.message_size_max_bytes,
            memory_bytes=memory_bytes(store.memory_ratio_percent),
            memory_count_max=store.transfer_memory_count_max,
            memory_bytes_max=store.transfer_memory_bytes_max,
            disk_count_max=store.transfer_disk_count_max,
            disk_bytes_max=store.transfer_disk_bytes_max,
            long_polling=broker.long_polling_enable, short_polling_ms=broker.short_polling_ms,
            seed=int.from_bytes(os.urandom(8), "big"),
            transactions_refused=broker.reject_transaction_message,
            delay_level_count=len(self._settings.delay_levels_ms),
            extension_folder=os.fsencode(files.queue_extensions),
            extension_file_bytes=store.queue_extension_file_bytes,
            light_queues=store.light_queues_enable,
            filters_enabled=broker.property_filter_enable,
            filter_retry=broker.filter_retry_enable, slave_read=broker.slave_read_enable,
        )
        self._loop.hello()

    def work(self, turn_ms: int) -> None:
        self._loop.run(turn_ms)
        events, lost = self._loop.events()
        for remote, reason, detail in events:
            log.warning("connection from %s closed: %s", remote,
                        REASONS[reason].format(detail=detail))
        if lost:
            log.warning("%d more connections were closed or refused", lost)

    def stop(self) -> None:
        self._loop.drain()
