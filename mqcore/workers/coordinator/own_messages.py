"""The coordinator's Appender: the broker's own messages, through its ring to the writer."""
from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from mqcore.broker.ports import AppendStatus, Put
from mqcore.wire.properties import CLUSTER, encode_properties

WAITING_COUNT_MAX = 10_000
WAITING_BYTES_MAX = 64 << 20
TAG_MAX = 0x7FFF_FFFF

log = logging.getLogger("mqcore.coordinator")

Done = Callable[[Put], None]


class Producer(Protocol):
    """The part of mqcore.store.log.producer.LogProducer that is used here."""

    def append(
        self, topic: str, queue_id: int, body: bytes, properties: bytes, *, born_ms: int,
        flag: int, sys_flag: int, reconsume_times: int, tag: int,
        born_host: tuple[str, int] | None, store_host: tuple[str, int] | None,
        prepared_position: int, waits: bool,
    ) -> bool: ...

    def refused(self) -> bool: ...

    def has_results(self) -> bool: ...

    def take_results(self) -> list[tuple[int, int, int, int]]: ...


class _Message(NamedTuple):
    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    rest: dict[str, Any]
    done: Done


class OwnMessages:
    """
    Appends in order; what the ring has no room for waits, within bounds.

    Every message is settled once. A message in flight when the writer dies is answered by the next
    writer (WRITER_RESTARTED).
    """

    def __init__(self, producer: Producer, cluster: str) -> None:
        self._producer = producer
        self._cluster = cluster
        self._waiting: deque[_Message] = deque()
        self._waiting_bytes = 0
        self._settling: dict[int, Done] = {}     # by tag; as many as the ring has records
        self._tag = 0

    def append(
        self, topic: str, queue_id: int, body: bytes, properties: Mapping[str, str], *,
        born_ms: int, flag: int = 0, sys_flag: int = 0, reconsume_times: int = 0,
        born_host: tuple[str, int] | None = None, store_host: tuple[str, int] | None = None,
        prepared_position: int = 0, waits: bool = False, done: Done | None = None,
    ) -> None:
        done = done or _logged(topic)
        refusal = self._refusal(len(body))
        if refusal is not None:
            done(Put(refusal))
            return
        try:
            text = encode_properties({CLUSTER: self._cluster, **properties})
        except ValueError as error:
            log.warning("a message for %s: %s", topic, error)
            done(Put(AppendStatus.MESSAGE_ILLEGAL))
            return
        self._waiting.append(_Message(topic, queue_id, body, text.encode("utf-8", "replace"), {
            "born_ms": born_ms, "flag": flag, "sys_flag": sys_flag,
            "reconsume_times": reconsume_times, "born_host": born_host, "store_host": store_host,
            "prepared_position": prepared_position, "waits": waits}, done))
        self._waiting_bytes += len(body)
        self._hand_over()

    def push(self) -> None:
        """Look at the results, and hand over what waits."""
        for tag, status, queue_offset, position in self._producer.take_results():
            done = self._settling.pop(tag, None)
            if done is not None:
                done(Put(AppendStatus(status), queue_offset, position))
        self._hand_over()

    def has_results(self) -> bool:
        """Whether `push` is due: to be asked again after the process has armed its doorbell."""
        return self._producer.has_results()

    def _refusal(self, size: int) -> AppendStatus | None:
        """Why a message cannot even wait."""
        if self._producer.refused():
            return AppendStatus.SERVICE_NOT_AVAILABLE
        if len(self._waiting) >= WAITING_COUNT_MAX or self._waiting_bytes + size > (
                WAITING_BYTES_MAX):
            log.error("the writer does not take the broker's own messages: %d wait",
                      len(self._waiting))
            return AppendStatus.SERVICE_NOT_AVAILABLE
        return None

    def _hand_over(self) -> None:
        while self._waiting:
            message = self._waiting[0]
            tag = self._tag + 1 if self._tag < TAG_MAX else 1
            try:
                if not self._producer.append(
                        message.topic, message.queue_id, message.body, message.properties,
                        tag=tag, **message.rest):
                    return
            except ValueError as error:
                log.warning("a message for %s: %s", message.topic, error)
                self._forget_first()
                message.done(Put(AppendStatus.MESSAGE_ILLEGAL))
                continue
            self._tag = tag
            self._settling[tag] = message.done
            self._forget_first()

    def _forget_first(self) -> None:
        self._waiting_bytes -= len(self._waiting.popleft().body)


def _logged(topic: str) -> Done:
    def done(put: Put) -> None:
        if not put.status.stored:
            log.error("a message of the broker's own for %s was not stored: %s", topic,
                      put.status.name)
    return done
