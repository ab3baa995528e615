"""
Sends, pulls and transactions of a broker in memory: what the native processes of a real one do.

The rules decide first (mqcore.broker); what they let pass is done here.
"""
from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, replace

from mqcore.broker.core import Core
from mqcore.broker.ports import Put
from mqcore.broker.request import Answer, Fields, Redo, Request, remote_address
from mqcore.broker.requests.check_sender import CheckSender
from mqcore.broker.requests.pull_header import PullHeader
from mqcore.broker.requests.send_back import Place, delay
from mqcore.broker.requests.send_rules import SendHeader, answer_fields, check_timer
from mqcore.testing.memory_store import MemoryStore, message
from mqcore.wire.codes import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    PULL_FLAG_COMMIT,
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.command import encode
from mqcore.wire.command import request as make_request
from mqcore.wire.ids import offset_message_id
from mqcore.wire.properties import (
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_PROPERTIES,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    decode_properties,
)
from mqcore.wire.recall_handle import SECOND_MS, RecallHandle
from mqcore.wire.records import (
    FLAG_TRANSACTION_MASK,
    TRANSACTION_COMMIT,
    Record,
    RecordError,
    decode_batch,
    encode_record,
)
from mqcore.wire.tags import Subscription, parse_subscription

PULL_COUNT_MAX = 32
PULL_BYTES_MAX = 256 << 10
SCANNED_MAX = 800                   # entries that one pull looks at


@dataclass(slots=True)
class Half:
    """A half message that nobody has ended."""

    record: Record
    checks: int = 0
    timer: asyncio.TimerHandle | None = None


class MemoryMessages:
    """Over the rules' tables and the store."""

    def __init__(self, core: Core, store: MemoryStore) -> None:
        self._core = core
        self._store = store
        self._checks = CheckSender(core)
        self._halves: dict[int, Half] = {}
        self._waiting: dict[tuple[str, int], set[asyncio.Future[None]]] = {}

    # -- sends ------------------------------------------------------------------------------------

    def send(self, request: Request, redo: Redo) -> Answer:
        """Store the message, or messages, of a send that the rules let pass."""
        header = SendHeader.read(request)
        topic = redo.topic or header.topic
        queue_id = header.queue_id if redo.queue_id is None else redo.queue_id
        config = self._core.topics.get(topic)
        if queue_id < 0 and config is not None:
            queue_id = random.randrange(max(config.write_queue_count, 1))
        ext = answer_fields(self._core)
        try:
            items = self._items(request, header)
        except RecordError as error:
            return Answer(ResponseCode.MESSAGE_ILLEGAL, str(error), ext)
        puts = [self._put(request, header, Place(topic, queue_id), *item) for item in items]
        lost = next((put for put in puts if not put.status.stored), None)
        if lost is not None:
            return Answer(ResponseCode.SERVICE_NOT_AVAILABLE,
                          f"the message is not stored: {lost.status.name}", ext)
        broker = self._core.settings.broker
        record = self._store.decoded(puts[0].position)
        if record is not None and record.topic == TIMER_TOPIC:
            ext = ext | {"recallHandle": RecallHandle(
                topic, broker.name, int(record.properties[TIMER_OUT_MS]),
                record.properties.get(UNIQ_KEY, "")).text}
        return Answer(ResponseCode.SUCCESS, None, ext | {
            "msgId": ",".join(offset_message_id(
                broker.advertised_ip, broker.listen_port, put.position) for put in puts),
            "queueId": str(queue_id), "queueOffset": str(puts[0].queue_offset)})

    def _items(self, request: Request, header: SendHeader) -> list[tuple[
            bytes, dict[str, str], int]]:
        if not header.batch:
            return [(request.command.body, decode_properties(header.properties), header.flag)]
        items = [(item.body, item.properties, item.flag)
                 for item in decode_batch(request.command.body)]
        if not items:
            raise RecordError("a batch without messages")
        return items

    def _put(self, request: Request, header: SendHeader, place: Place, body: bytes,
             properties: dict[str, str], flag: int) -> Put:
        sys_flag = header.sys_flag
        if properties.get(TRANSACTION_PREPARED, "").lower() == "true":
            properties |= {REAL_TOPIC: place.topic, REAL_QUEUE_ID: str(place.queue_id)}
            sys_flag &= ~FLAG_TRANSACTION_MASK
            place = Place(HALF_TOPIC, 0)
            self._checks.need_topic(HALF_TOPIC, request.now_ms)
        else:
            delay(place, properties, len(self._core.settings.delay_levels_ms))
            if place.topic != SCHEDULE_TOPIC:
                place = self._timed(request, place, properties, was_delivered=(
                    header.topic.startswith(RETRY_PREFIX) and header.reconsume_times > 0))
        return self._store.put(message(
            place.topic, place.queue_id, body, properties, born_ms=header.born_ms, flag=flag,
            sys_flag=sys_flag, reconsume_times=header.reconsume_times,
            born_host=remote_address(request.remote)))

    def _timed(
        self, request: Request, place: Place, properties: dict[str, str], *,
        was_delivered: bool = False,
    ) -> Place:
        """Where a message goes that may have a time of delivery (timer.md 1)."""
        ahead_ms = check_timer(
            self._core, request, properties, was_delivered=was_delivered)
        if not ahead_ms:
            return place
        due_ms = self._core.wall_ms(request.now_ms) + ahead_ms
        for name in TIMER_PROPERTIES:
            properties.pop(name, None)
        properties |= {TIMER_DELIVER_MS: str(due_ms), REAL_TOPIC: place.topic,
                       TIMER_OUT_MS: str((due_ms - 1) // SECOND_MS * SECOND_MS),
                       REAL_QUEUE_ID: str(place.queue_id)}
        self._checks.need_topic(TIMER_TOPIC, request.now_ms)
        return Place(TIMER_TOPIC, 0)

    # -- pulls ------------------------------------------------------------------------------------

    async def pull(self, request: Request) -> Answer:
        """Answer a pull that the rules let pass; when it finds nothing, after a while."""
        fields = Fields.of(request.command)
        header = PullHeader.read(fields)
        wanted = self._wanted(header)
        if header.sys_flag & PULL_FLAG_COMMIT:
            self._core.offsets.commit(header.group, header.topic, header.queue_id,
                                      header.commit_offset, "")
        count_max = min(fields.i32("maxMsgNums"), PULL_COUNT_MAX)
        hold_s = fields.i64("suspendTimeoutMillis") / 1000
        hold = bool(header.sys_flag & PULL_FLAG_SUSPEND) and hold_s > 0
        deadline = asyncio.get_running_loop().time() + hold_s
        offset = header.offset
        while True:
            offset, found = self._found(header, offset, wanted, count_max)
            key = header.topic, header.queue_id
            end = (self._store.queue_range(*key) or (0, 0))[1]
            if found or not hold or offset < end:
                break
            hold = await self._growth(key, deadline)
        code = ResponseCode.SUCCESS if found else (
            ResponseCode.PULL_RETRY_IMMEDIATELY if offset > header.offset
            else ResponseCode.PULL_NOT_FOUND)
        return Answer(code, "FOUND" if found else "NO_MESSAGE", {
            "suggestWhichBrokerId": "0", "nextBeginOffset": str(offset), "minOffset": "0",
            "maxOffset": str(end)}, b"".join(found))

    def _wanted(self, header: PullHeader) -> Subscription:
        if header.sys_flag & PULL_FLAG_SUBSCRIPTION:
            return parse_subscription(header.topic, header.expression)
        return self._core.clients.consumers[header.group].subscriptions[header.topic]

    def _found(self, header: PullHeader, offset: int, wanted: Subscription, count_max: int,
               ) -> tuple[int, list[bytes]]:
        """Records from `offset` on, and the offset after the last entry that was looked at."""
        found: list[bytes] = []
        size = 0
        for _ in range(SCANNED_MAX):
            entry = self._store.entry(header.topic, header.queue_id, offset)
            if entry is None or len(found) >= count_max or (
                    found and size + entry.size > PULL_BYTES_MAX):
                break
            offset += 1
            raw = self._store.record(entry.position)
            if raw is not None and wanted.matches_code(entry.tag_code):
                found.append(raw)
                size += len(raw)
        return offset, found

    async def _growth(self, queue: tuple[str, int], deadline: float) -> bool:
        """Wait until a queue grows; False when the deadline comes first."""
        waiting = self._waiting.setdefault(queue, set())
        grown = asyncio.get_running_loop().create_future()
        waiting.add(grown)
        try:
            async with asyncio.timeout_at(deadline):
                await grown
        except TimeoutError:
            return False
        finally:
            waiting.discard(grown)
        return True

    def grown(self, topic: str, queue_id: int) -> None:
        """A message can be read: pulls that wait for it continue."""
        for waiting in self._waiting.get((topic, queue_id), ()):
            with contextlib.suppress(asyncio.InvalidStateError):
                waiting.set_result(None)

    # -- transactions -----------------------------------------------------------------------------

    def halved(self, position: int) -> None:
        """A half message is stored: asked about when it is old enough."""
        record = self._store.decoded(position)
        if record is None:
            return
        half = self._halves[position] = Half(record)
        self._ask_later(position, half, self._core.settings.broker.transaction_timeout_ms)

    def _ask_later(self, position: int, half: Half, delay_ms: int) -> None:
        half.timer = asyncio.get_running_loop().call_later(
            delay_ms / 1000, self._ask, position)

    def _ask(self, position: int) -> None:
        """Ask a producer about a half message, or give it up after too many times."""
        half = self._halves[position]
        broker = self._core.settings.broker
        if half.checks >= broker.transaction_check_max:
            del self._halves[position]
            self._checks.need_topic(GIVEN_UP_TOPIC, half.record.store_timestamp_ms)
            self._store.put(replace(half.record, topic=GIVEN_UP_TOPIC, queue_id=0))
            return
        properties = half.record.properties
        unique = properties.get(UNIQ_KEY)
        command = make_request(RequestCode.CHECK_TRANSACTION_STATE, {
            "tranStateTableOffset": str(half.record.queue_offset),
            "commitLogOffset": str(position), "msgId": unique, "transactionId": unique,
            "offsetMsgId": half.record.offset_message_id,
        }, encode_record(replace(half.record, topic=properties[REAL_TOPIC],
                                 queue_id=int(properties[REAL_QUEUE_ID]))), oneway=True)
        if self._checks.ask(properties.get(PRODUCER_GROUP, ""), encode(command)):
            half.checks += 1
        self._ask_later(position, half, broker.transaction_check_interval_ms)

    def end_transaction(self, request: Request) -> Answer | None:
        """Commit or roll back a half message, once; an undecided end changes nothing."""
        fields = Fields.of(request.command)
        position, decision = fields.i64("commitLogOffset"), fields.i32("commitOrRollback")
        if decision == 0:
            return None
        half = self._halves.get(position)
        if (half is None or half.record.queue_offset != fields.i64("tranStateTableOffset")
                or half.record.properties.get(PRODUCER_GROUP) != fields.text("producerGroup")):
            return Answer(ResponseCode.SYSTEM_ERROR,
                          f"there is no such half message at log position {position}")
        if decision == TRANSACTION_COMMIT:
            properties = dict(half.record.properties)
            place = self._timed(request, Place(
                properties[REAL_TOPIC], int(properties[REAL_QUEUE_ID])), properties)
            put = self._store.put(replace(
                half.record, topic=place.topic, queue_id=place.queue_id, properties=properties,
                sys_flag=half.record.sys_flag | TRANSACTION_COMMIT,
                prepared_transaction_offset=position))
            if not put.status.stored:
                return Answer(ResponseCode.SERVICE_NOT_AVAILABLE, put.status.name)
        del self._halves[position]
        if half.timer is not None:
            half.timer.cancel()
        return Answer(ResponseCode.SUCCESS)

    def close(self) -> None:
        """Nobody is asked any more."""
        for half in self._halves.values():
            if half.timer is not None:
                half.timer.cancel()
