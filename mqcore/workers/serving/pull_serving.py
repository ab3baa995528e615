"""Work of a pull-serving process: a native loop over its own connections."""
from __future__ import annotations

import logging
import os
import socket
import time
from functools import partial

from mqcore.acl.audit import Audit
from mqcore.broker.settings.model import LimitSettings, Settings
from mqcore.broker.settings.validation import address_range
from mqcore.layout import FRAME_LENGTH_MAX
from mqcore.net.closed import why_closed
from mqcore.net.remoting.access import AccessReason
from mqcore.net.secured import MODES, native_context
from mqcore.net.serving.live import LimitValues, LiveValues
from mqcore.net.serving.loop import ServingLoop
from mqcore.net.transport.tls_context import TlsContext
from mqcore.participants import SERVING
from mqcore.shm.segment import Segment
from mqcore.tls.renewed import Renewed
from mqcore.tls.settings import SERVER_FILES, TlsSettings
from mqcore.workers.process import descriptors
from mqcore.workers.process.layout import StoreFiles, memory_bytes

WHY: dict[int, str] = {
    AccessReason.ACCESS_NO_KEY: "no access key",
    AccessReason.ACCESS_UNKNOWN_KEY: "unknown access key",
    AccessReason.ACCESS_SIGNATURE: "wrong signature",
    AccessReason.ACCESS_TOPIC: "no permission for the topic",
    AccessReason.ACCESS_GROUP: "no permission for the group",
    AccessReason.ACCESS_FIELDS: "a field before AccessKey",
}

log = logging.getLogger("mqcore.pull-serving")


def changeable(settings: Settings) -> LiveValues:
    """What can change while the loop runs."""
    broker, store = settings.broker, settings.store
    return {
        "region": broker.region_id, "trace_on": broker.trace_on,
        "body_bytes_max": store.message_size_max_bytes,
        "idle_ms_max": settings.processes.connection_idle_ms,
        "memory_bytes": memory_bytes(store.memory_ratio_percent),
        "memory_count_max": store.transfer_memory_count_max,
        "memory_bytes_max": store.transfer_memory_bytes_max,
        "disk_count_max": store.transfer_disk_count_max,
        "disk_bytes_max": store.transfer_disk_bytes_max,
        "replay_count_max": store.transfer_replay_count_max,
        "replay_bytes_max": store.transfer_replay_bytes_max,
        "long_polling": broker.long_polling_enable, "short_polling_ms": broker.short_polling_ms,
        "delay_level_count": len(settings.delay_levels_ms),
        "transactions_refused": broker.reject_transaction_message,
        "timers_refused": broker.timer_messages == "refuse",
        "timer_max_ms": 1000 * broker.timer_max_delay_s * (broker.timer_messages == "at_time"),
        "filters_enabled": broker.property_filter_enable,
        "filter_retry": broker.filter_retry_enable, "slave_read": broker.slave_read_enable,
        "accept_sends_from_ms": broker.accept_sends_from_ms, **limits(settings.limits),
    }


def limits(settings: LimitSettings) -> LimitValues:
    """As ServingLoop.configure takes them."""
    def of(whose: str) -> tuple[int, ...]:
        return tuple(getattr(settings, f"{whose}_{what}") for what in (
            "connection_count", "in_flight_count", "bytes_per_s", "messages_per_s"))

    return {"address_limits": of("address"), "account_limits": of("account"),
            "limits_exempt": tuple(one for one in map(address_range, settings.exempt_addresses)
                                   if one is not None)}      # each is one: checks.py


class PullServing:
    loop = ServingLoop

    def __init__(self, settings: Settings, segment: Segment, index: int,
                 listeners: list[tuple[socket.socket, bool]],
                 kept_tls: TlsSettings | None = None) -> None:
        """kept_tls: with copies of the TLS files in force, for a successor."""
        self.name = f"pull-serving-{index}"
        self.slot = SERVING.slot + index
        self._settings = settings
        self._segment = segment
        self._index = index
        self._listeners = listeners
        self._kept_tls = kept_tls
        self._audit = Audit(settings.acl.audit, settings.acl.audit_lines_per_second)
        self._damaged = 0                  # messages that the log has told of
        self._damaged_more = False

    def start(self) -> None:
        broker, store = self._settings.broker, self._settings.store
        processes = self._settings.processes
        files = StoreFiles(self._settings.store_root)
        share = descriptors.share(self._settings, self._segment.serving_count,
                                  descriptors.raise_limit())
        self._loop = self.loop(
            self._segment, self._index, self._own_listeners(), self._settings.log_folders.text(),
            os.fsencode(files.queues), store_address=(broker.advertised_ip, broker.listen_port),
            cluster=broker.cluster, broker_name=broker.name,
            file_entries=store.queue_file_entry_count,
            connection_max=share.connections, queue_files_max=share.queue_files,
            extension_files_max=share.extension_files, held_max=processes.held_pull_count_max,
            seed=int.from_bytes(os.urandom(8), "big"),
            extension_folder=os.fsencode(files.queue_extensions),
            extension_file_bytes=store.queue_extension_file_bytes,
            light_queues=store.light_queues_enable, slave=self._settings.is_slave,
            connection_memory_bytes=processes.connection_memory_bytes, **changeable(self._settings),
        )
        kept = self._kept_tls
        self._tls = Renewed(
            self._settings.tls, SERVER_FILES, native_context, self._secure,
            kept=None if kept is None else partial(native_context, kept, any_time=True))
        self._loop.hello()

    def _own_listeners(self) -> list[tuple[socket.socket, bool]]:
        """The sockets at which RocketMQ's own frames come."""
        return self._listeners

    def _secure(self, context: TlsContext | None) -> None:
        tls = self._settings.tls
        self._loop.secure(MODES[tls.mode], context, tls.handshake_ms_max, tls.handshake_count_max)

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        self._loop.configure(**changeable(settings))

    def work(self, turn_ms: int) -> None:
        self._tls.look(time.monotonic_ns() // 1_000_000)
        self._loop.run(turn_ms)
        events, lost = self._loop.events()
        for remote, reason, detail in events:
            log.warning("connection from %s closed: %s", remote, why_closed(
                reason, detail, memory="processes.connection_memory_bytes",
                count="processes.connection_count_max", frame_max=FRAME_LENGTH_MAX))
        if lost:
            log.warning("%d more connections were closed or refused", lost)
        self._say_damaged()
        self._say_refused()

    def _say_refused(self) -> None:
        refused, lost = self._loop.refusals()
        for one in refused:
            host = f"[{one.address}]" if ":" in one.address else one.address
            self._audit.line(account=one.access_key, remote=f"{host}:{one.port}", code=one.code,
                             what=one.name, refused=WHY[one.reason])
        if lost:
            self._audit.missed(lost)

    def _say_damaged(self) -> None:
        """Each damaged message once, as long as there is room to remember them."""
        positions, more = self._loop.damaged()
        for position in positions[self._damaged:]:
            log.error("the message at log position %d is damaged and is not handed out: mqcore "
                      "store verify says more, mqcore store repair mends it", position)
        if more and not self._damaged_more:
            log.error("more messages are damaged: mqcore store verify says which")
        self._damaged, self._damaged_more = len(positions), more

    def stop(self) -> None:
        self._loop.drain()
