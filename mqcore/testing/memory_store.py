"""
A store that is gone with its process: records by position, queues of entries, delays.

What the rules of mqcore.broker ask of a store (mqcore/broker/ports.py), and what the writer, the
dispatcher and the scheduler do. One thread.
"""
from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mqcore.broker.ports import AppendStatus, ConsumeQueueEntry, Put, QueueGrowth
from mqcore.broker.requests.recall import TIMER_DEL_UNIQKEY, TIMER_DEQUEUE_MS
from mqcore.broker.settings.model import Settings
from mqcore.wire.codes import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from mqcore.wire.properties import (
    CLUSTER,
    KEYS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from mqcore.wire.records import Record, RecordError, decode_record, encode_record

Queue = tuple[str, int]
MEMORY_BYTES = 256 << 20


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True, frozen=True)
class Found:
    """The key index's word on one key (ports.KeyMatches)."""

    positions: tuple[int, ...]
    oldest_ms: int
    last_time_ms: int
    last_position: int


class MemoryStore:
    """Records and queues; `grown` is called with each queue that gets a message."""

    def __init__(self, settings: Settings, grown: Callable[[str, int], None],
                 halved: Callable[[int], None]) -> None:
        """
        grown   topic and queue id of a message that can be read now
        halved  position of a new half message
        """
        self._settings = settings
        self._grown = grown
        self._halved = halved
        self._records: dict[int, bytes] = {}
        self._queues: dict[Queue, list[ConsumeQueueEntry]] = {}
        self._keys: dict[tuple[str, str], list[tuple[int, int]]] = {}   # (store time, position)
        self._end = 0
        self._last_ms = 0
        self._timers: set[asyncio.TimerHandle] = set()
        self._timed: dict[str, list[asyncio.TimerHandle]] = {}       # by topic+unique key

    # -- writing ----------------------------------------------------------------------------------

    def put(self, record: Record) -> Put:
        """Store a message where its topic and queue say; place, times and host are made here."""
        now_ms = max(wall_ms(), self._last_ms)
        broker = self._settings.broker
        entries = self._queues.setdefault((record.topic, record.queue_id), [])
        whole = replace(
            record, queue_offset=len(entries), physical_offset=self._end,
            store_timestamp_ms=now_ms,
            properties={**record.properties, CLUSTER: broker.cluster},
            store_host=record.store_host if record.store_host[0] else (
                broker.advertised_ip, broker.listen_port))
        try:
            raw = encode_record(whole)
        except (RecordError, ValueError):
            return Put(AppendStatus.MESSAGE_ILLEGAL)
        if self._end + len(raw) > MEMORY_BYTES:
            return Put(AppendStatus.SERVICE_NOT_AVAILABLE)
        position = self._end
        self._records[position] = raw
        self._end += len(raw)
        self._last_ms = now_ms
        entries.append(ConsumeQueueEntry(position, len(raw), whole.tag_code))
        for key in {whole.properties.get(UNIQ_KEY, ""), *whole.properties.get(KEYS, "").split()}:
            if key:
                self._keys.setdefault((whole.topic, key), []).append((now_ms, position))
        if whole.topic == SCHEDULE_TOPIC:
            self._deliver_later(position, whole.queue_id)
        elif whole.topic == TIMER_TOPIC:
            self._wait(position, whole)
        elif whole.topic == HALF_TOPIC:
            self._halved(position)
        self._grown(whole.topic, whole.queue_id)
        return Put(AppendStatus.PUT_OK, whole.queue_offset, position)

    def append(
        self, topic: str, queue_id: int, body: bytes, properties: Mapping[str, str], *,
        born_ms: int, flag: int = 0, sys_flag: int = 0, reconsume_times: int = 0,
        born_host: tuple[str, int] | None = None, store_host: tuple[str, int] | None = None,
        waits: bool = False, done: Callable[[Put], None] | None = None,
    ) -> None:
        """A message of the broker's own making (ports.Appender)."""
        broker = self._settings.broker
        put = self.put(message(
            topic, queue_id, body, dict(properties), born_ms=born_ms, flag=flag,
            sys_flag=sys_flag, reconsume_times=reconsume_times,
            born_host=born_host or (broker.advertised_ip, broker.listen_port),
            store_host=store_host or ("", 0)))
        if done is not None:
            done(put)

    def _deliver_later(self, position: int, level_index: int) -> None:
        """The copy of a delayed message, for its real queue, when it is due."""
        levels = self._settings.delay_levels_ms
        delay_ms = levels[min(level_index, len(levels) - 1)]
        loop = asyncio.get_running_loop()

        def deliver() -> None:
            self._timers.discard(timer)
            held = self.decoded(position)
            if held is not None:
                self.put(replace(
                    held, topic=held.properties[REAL_TOPIC],
                    queue_id=int(held.properties[REAL_QUEUE_ID])))

        timer = loop.call_later(delay_ms / 1000, deliver)
        self._timers.add(timer)

    def _wait(self, position: int, record: Record) -> None:
        """A message with a time of delivery waits, or is taken back."""
        recalled = record.properties.get(TIMER_DEL_UNIQKEY)
        if recalled is not None:
            for timer in self._timed.pop(recalled, []):
                timer.cancel()
            return
        key = f"{record.properties[REAL_TOPIC]}+{record.properties.get(UNIQ_KEY, '')}"
        due_ms = int(record.properties[TIMER_DELIVER_MS])
        loop = asyncio.get_running_loop()

        def deliver() -> None:
            now_ms = wall_ms()
            if now_ms < due_ms:                      # the loop's clock is not the wall clock
                waiting[place] = later(due_ms - now_ms)
                return
            self._timed.pop(key, None)
            held = self.decoded(position)
            if held is not None:
                kept = {name: value for name, value in held.properties.items()
                        if name not in (REAL_TOPIC, REAL_QUEUE_ID, TIMER_OUT_MS)}
                self.put(replace(
                    held, topic=held.properties[REAL_TOPIC],
                    queue_id=int(held.properties[REAL_QUEUE_ID]),
                    properties=kept | {TIMER_DEQUEUE_MS: str(now_ms)}))

        def later(ahead_ms: int) -> asyncio.TimerHandle:
            return loop.call_later(max(ahead_ms, 1) / 1000, deliver)

        waiting = self._timed.setdefault(key, [])
        place = len(waiting)
        waiting.append(later(due_ms - wall_ms()))

    @property
    def timed_count(self) -> dict[str, int]:
        """How many messages wait for a time of delivery, by topic."""
        found: dict[str, int] = {}
        for key, waiting in self._timed.items():
            topic = key.partition("+")[0]
            found[topic] = found.get(topic, 0) + len(waiting)
        return found

    def close(self) -> None:
        """Nothing is delivered any more."""
        for timer in (*self._timers, *(one for waiting in self._timed.values() for one in waiting)):
            timer.cancel()

    # -- reading (ports.StoreReader) --------------------------------------------------------------

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        entries = self._queues.get((topic, queue_id))
        return None if entries is None else (0, len(entries))

    def log_range(self) -> tuple[int, int]:
        return 0, self._end

    def entry(self, topic: str, queue_id: int, offset: int) -> ConsumeQueueEntry | None:
        entries = self._queues.get((topic, queue_id), [])
        return entries[offset] if 0 <= offset < len(entries) else None

    def record(self, position: int) -> bytes | None:
        return self._records.get(position)

    def named_record(self, position: int) -> bytes | None:
        return self._records.get(position)

    def decoded(self, position: int) -> Record | None:
        """The message at a position."""
        raw = self._records.get(position)
        return None if raw is None else decode_record(raw)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        entry = self.entry(topic, queue_id, offset)
        return -1 if entry is None else decode_record(
            self._records[entry.position]).store_timestamp_ms

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        offsets = range(len(self._queues.get((topic, queue_id), [])))
        found = bisect.bisect_left(
            offsets, timestamp_ms, key=lambda offset: self.store_time(topic, queue_id, offset))
        return min(found, max(len(offsets) - 1, 0))

    def in_memory(self, position: int) -> bool:
        return True

    def find_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, Found]:
        yield
        matching = [(stored_ms, position) for stored_ms, position in
                    reversed(self._keys.get((topic, key), []))
                    if begin_ms <= stored_ms <= end_ms][:max(count_max, 0)]
        return Found(tuple(position for _, position in matching),
                     matching[-1][0] if matching else 0, self._last_ms, self._end)

    # -- the queues as a whole (ports.Queues) -----------------------------------------------------

    def all(self) -> list[tuple[str, int, int]]:
        return [(*queue, len(entries)) for queue, entries in self._queues.items()]

    def some(self) -> Iterator[list[tuple[str, int, int]]]:
        yield self.all()

    def ends(self) -> list[tuple[str, int, int]]:
        return self.all()

    def end(self, topic: str, queue_id: int) -> int:
        return len(self._queues.get((topic, queue_id), ()))

    @property
    def alone(self) -> bool:
        return False

    @property
    def taking_over(self) -> bool:
        return False

    def growth(self) -> list[QueueGrowth]:
        """Nothing: put rates are not kept."""
        return []

    def remove(
        self, queues: Sequence[Queue], done: Callable[[str], None],
        unless: Callable[[str], bool] | None = None,
    ) -> Generator[None, None, None]:
        yield
        for queue in queues:
            if unless is not None and unless(queue[0]):
                continue
            for entry in self._queues.pop(queue, []):
                self._records.pop(entry.position, None)
        done("")

    def delete_expired_files(self) -> None:
        """There are none."""


def message(
    topic: str, queue_id: int, body: bytes, properties: dict[str, str], *, born_ms: int,
    flag: int, sys_flag: int, reconsume_times: int, born_host: tuple[str, int],
    store_host: tuple[str, int] = ("", 0), prepared_position: int = 0,
) -> Record:
    """A message to be put: without a place, a store time, a size."""
    return Record(
        topic=topic, queue_id=queue_id, queue_offset=0, physical_offset=0, flag=flag,
        sys_flag=sys_flag, body_crc=0, born_timestamp_ms=born_ms, born_host=born_host,
        store_timestamp_ms=0, store_host=store_host, reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_position, body=body, properties=properties, size=0)
