"""Brings a live broker into the state that a recorded request met."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command
from mqcore.wire.properties import encode_properties
from mqcore.wire.records import Record, decode_records
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

FILLER_TAG = "filler"
SUBSCRIPTION_TIME_MS = 1_700_000_000_000


def resendable(record: Record) -> dict[str, str]:
    """A record's properties without what the broker adds or drops, and its delay that is over."""
    left_out = ("CLUSTER", "DELAY", "WAIT")
    return {key: text for key, text in record.properties.items() if key not in left_out}


class State(Peer):
    """A connection that creates topics, stores messages, registers groups and looks at results."""

    def topic(self, name: str, queues: int) -> None:
        answer = self.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(name, queues))
        assert answer.code == 0, answer.remark

    def message(
        self, topic: str, queue_id: int = 0, body: bytes = b"filler",
        properties: dict[str, str] | None = None, **fields: int,
    ) -> Command:
        """Store one message; returns the answer, whose fields say where it is."""
        text = encode_properties(properties or {"TAGS": FILLER_TAG})
        answer = self.ask(
            Code.SEND_MESSAGE_V2,
            send_fields(topic, queue_id=queue_id, properties=text, **fields), body,
        )
        assert answer.code == 0, answer.remark
        return answer

    def again(self, record: Record, topic: str, queue_id: int) -> Command:
        """Store what a recorded record was made from (a delayed one as it was delivered)."""
        properties = resendable(record)
        return self.message(
            topic, queue_id, record.body, properties or {"none": "1"}, flag=record.flag,
            sys_flag=record.sys_flag, born_ms=record.born_timestamp_ms,
            reconsume_times=record.reconsume_times,
        )

    def fill(self, topic: str, queue_id: int, end: int, records: Iterable[Record] = ()) -> None:
        """Messages 0 to `end` - 1 of a queue: `records` at their offsets, fillers elsewhere."""
        at = {record.queue_offset: record for record in records}
        for offset in range(end):
            if offset in at:
                self.again(at[offset], topic, queue_id)
            else:
                self.message(topic, queue_id)
        wait_until(lambda: self.queue_end(topic, queue_id) >= end, f"{end} messages in the queue")

    def queue_end(self, topic: str, queue_id: int) -> int:
        answer = self.ask(Code.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
        return int((answer.ext or {})["offset"] or 0)

    def stored(self, topic: str, queue_id: int = 0, offset: int = 0) -> list[Record]:
        """The messages of a queue from `offset` on, one pull's worth."""
        answer = self.ask(
            Code.PULL_MESSAGE,
            pull_fields(topic, group="LOOKER", queue_id=queue_id, offset=offset),
        )
        return decode_records(answer.body) if answer.code == 0 else []

    def by_id(self, message_id: str) -> Record:
        """The record that an offset message id names."""
        answer = self.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": str(int(message_id[-16:], 16))})
        assert answer.code == 0, answer.remark
        (record,) = decode_records(answer.body)
        return record

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        answer = self.ask(Code.QUERY_CONSUMER_OFFSET, {
            "consumerGroup": group, "topic": topic, "queueId": str(queue_id),
        })
        return int((answer.ext or {})["offset"] or 0) if answer.code == 0 else None

    def consumer(
        self, group: str, topic: str, expression: str = "*", *, client_id: str = "member",
        version: int = SUBSCRIPTION_TIME_MS, kind: str = "TAG",
    ) -> None:
        """Register this connection as a member of `group`."""
        tags = [tag.strip() for tag in expression.split("||")] if expression != "*" else []
        body: dict[str, Any] = {"clientID": client_id, "producerDataSet": [], "consumerDataSet": [{
            "groupName": group, "messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [{
                "classFilterMode": False, "topic": topic, "subString": expression,
                "tagsSet": tags if kind == "TAG" else [], "codeSet": [], "subVersion": version,
                "expressionType": kind,
            }],
        }]}
        answer = self.ask(Code.HEART_BEAT, None, fastjson.dumps(body))
        assert answer.code == 0, answer.remark
