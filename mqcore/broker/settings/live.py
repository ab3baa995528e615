"""
Which settings a request can change while the broker runs, and how every process hears of it.

broker.md 10.5 (RocketMQ 4.9.8 writes into the objects that its threads read; what was copied at the
start stays). Here the coordinator writes those that differ from the start of the run into shared
memory, as lines (mqcore/shm/text_board.pyx); every other process looks there between its turns,
at least once a second, and a process that starts anew begins with them
(mqcore/workers/process/live.py).
The settings file that is read again at SIGHUP takes the same way: the supervisor tells the
coordinator (mqcore/workers/process/said.py), and what requests have changed stays on top of it.
"""
from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mqcore.broker.settings.model import FAILOVER_FILES, SECTIONS, Settings
from mqcore.broker.settings.stock_conf import CONVERTED, RENAMED
from mqcore.broker.settings.validation import check
from mqcore.broker.settings.values import Values
from mqcore.tls.settings import TlsSettings
from mqcore.wire import fastjson

SOURCE = "shared memory"

# Honoured at once, by whichever process it concerns.
LIVE = frozenset((
    "broker.permission", "broker.auto_create_topic", "broker.auto_create_group",
    "broker.notify_consumers_enable", "broker.client_expiry_ms", "broker.queue_lock_expiry_ms",
    "broker.disable_consume_if_consumer_read_slowly", "broker.consumer_fallbehind_threshold_bytes",
    "broker.offsets_persist_interval_ms", "broker.delay_offsets_persist_interval_ms",
    "broker.register_interval_ms", "broker.register_timeout_ms",
    "broker.region_id", "broker.trace_on", "broker.store_reply_messages",
    "broker.reject_transaction_message", "broker.timer_messages",
    "broker.timer_max_delay_s", "broker.transaction_timeout_ms",
    "broker.transaction_check_interval_ms", "broker.transaction_check_max",
    "broker.accept_sends_from_ms", "broker.long_polling_enable", "broker.short_polling_ms",
    "broker.slave_read_enable", "broker.property_filter_enable", "broker.filter_retry_enable",
    "broker.filter_clean_ms", "broker.message_delay_levels",
    "store.flush_interval_ms", "store.flush_least_pages", "store.flush_thorough_interval_ms",
    "store.commit_interval_ms", "store.commit_least_pages", "store.commit_thorough_interval_ms",
    "store.sync_flush_timeout_ms", "store.checkpoint_interval_ms",
    "store.transfer_memory_bytes_max", "store.transfer_memory_count_max",
    "store.transfer_disk_bytes_max", "store.transfer_disk_count_max",
    "store.transfer_replay_bytes_max", "store.transfer_replay_count_max",
    "store.memory_ratio_percent", "store.delete_when_hours", "store.reserved_hours",
    "store.disk_used_max_percent", "store.disk_clean_percent", "store.disk_clean_enable",
    "store.disk_refuse_percent", "store.clean_interval_ms", "store.clean_pause_ms",
    "store.query_count_max", "store.query_unique_count_max", "store.message_size_max_bytes",
    "processes.connection_idle_ms", "log.level",
    "replication.slave_fallbehind_max_bytes", "replication.transfer_batch_bytes",
    "replication.heartbeat_interval_ms", "replication.housekeeping_interval_ms",
    "replication.slave_timeout_ms", "replication.min_in_sync", "replication.metadata_interval_ms",
))

# Of those, what shared memory was made for at the start: no more than that at once.
ROOM = frozenset(("store.message_size_max_bytes",))

# Never by request: a peer is not to say where files are, who is let in, nor to make the store
# unreadable.
PATHS = frozenset((
    "store.path", "store.commit_log_paths", "store.commit_log_read_only_paths", "log.file",
    "acl.client_secret_key_file",
    *(f"failover.{name}" for name in FAILOVER_FILES),
    *(f"tls.{name}" for name in TlsSettings.__struct_fields__),
))
FILE_SIZES = frozenset((
    "store.segment_size_bytes", "store.queue_file_entry_count", "store.queue_extension_file_bytes",
    "store.index_slot_count", "store.index_entry_count",
))

# Nor to make a master of a slave, or the other way round: what it has is not what others took.
ROLE = frozenset(("replication.role", "broker.id"))

# Kept for the next start: what stock's own keys say besides.
AT_START = (
    frozenset(RENAMED.values()) | {target for target, _ in CONVERTED.values()}
    | {"store.flush", "store.pool_bytes", "broker.advertised_ip", "broker.advertised_host"}
) - LIVE - PATHS - FILE_SIZES - ROLE


def text(value: Any) -> str:
    """A setting's value as files and requests write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ";".join(str(item) for item in value)
    return str(value)


def value_of(settings: Settings, key: str) -> str:
    """The value of `section.key`, as text."""
    section, _, name = key.partition(".")
    return text(getattr(getattr(settings, section), name))


def with_values(settings: Settings, values: Values) -> Settings:
    """Settings with those of `values` in place of their own. Raises SettingsError."""
    changed = replace(settings, **{
        section: replace(getattr(settings, section), **values.section(section))
        for section in SECTIONS if values.section(section)
    })
    check(changed, changed, values)
    return changed


def live_part(running: Settings, wanted: Settings, started: Settings | None = None) -> Settings:
    """
    `running` with what is honoured at once of `wanted`, in a run that began with `started`; None:
    with `running`. Raises SettingsError.
    """
    values = Values(SECTIONS)
    for key in LIVE:
        section, _, name = key.partition(".")
        value = getattr(getattr(wanted, section), name)
        if key in ROOM and value > getattr(getattr(started or running, section), name):
            continue
        values.section(section)[name] = value
    return with_values(running, values)


def lines(settings: Settings, started: Settings | None) -> bytes:
    """
    The part of `settings` for processes that were started with `started`, None: all that can
    change. A line for each key, section.key="value", the value quoted as in JSON.
    """
    return "".join(
        f"{key}={fastjson.quote(value_of(settings, key))}\n" for key in sorted(LIVE)
        if started is None or value_of(settings, key) != value_of(started, key)
    ).encode("utf-8")


def applied(started: Settings, told: bytes) -> Settings:
    """`started` as `lines` say that it is now. Raises SettingsError."""
    values = Values(SECTIONS)
    for line in told.split(b"\n")[:-1]:
        key, _, value = line.partition(b"=")
        section, _, name = key.decode().partition(".")
        values.put(section, name, str(fastjson.loads(value)), SOURCE, as_text=True)
    return with_values(started, values)
