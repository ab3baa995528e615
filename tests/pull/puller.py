"""Pulls against a running broker, and what they came to."""
from __future__ import annotations

from typing import Any

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, encode, request
from mqcore.wire.properties import encode_properties
from mqcore.wire.records import Record, decode_records
from tests.support.waiting import wait_until
from tests.wire_live.peer import pull_fields, send_fields
from tests.wire_live.state import SUBSCRIPTION_TIME_MS, State

COMMITS, SUSPENDS, HAS_SUBSCRIPTION = 1, 2, 4
REPLAYS = 1 << 30
BATCH_MAX = 200


class Puller(State):
    """A connection that pulls as a consumer does, and prepares what it pulls."""

    def pull(self, topic: str, **fields: Any) -> Command:
        """One pull with its own subscription; names of PULL_MESSAGE fields replace the defaults."""
        return self.ask(Code.PULL_MESSAGE, self.fields(topic, **fields))

    def ask_to_pull(self, topic: str, **fields: Any) -> int:
        """Send a pull and do not wait; its opaque."""
        command = request(Code.PULL_MESSAGE, self.fields(topic, **fields))
        self.send(encode(command))
        return command.opaque

    @staticmethod
    def fields(topic: str, **fields: Any) -> dict[str, str | None]:
        given = {name: None if value is None else str(value) for name, value in fields.items()}
        return {**pull_fields(topic), **given}

    def sql(self, topic: str, expression: str, **fields: Any) -> Command:
        """A pull that brings an SQL92 expression."""
        return self.pull(topic, subscription=expression, expressionType="SQL92", **fields)

    def known(self, topic: str, group: str, **fields: Any) -> Command:
        """A pull by the subscription of the group's heartbeats."""
        return self.pull(topic, **{
            "consumerGroup": group, "sysFlag": 0, "subscription": None, "expressionType": None,
            "subVersion": SUBSCRIPTION_TIME_MS, **fields})

    def batch(self, topic: str, properties: list[dict[str, str]], body: bytes = b"x") -> None:
        """Store a message for each; returns when all can be pulled."""
        end = self.queue_end(topic, 0)
        for start in range(0, len(properties), BATCH_MAX):
            part = properties[start:start + BATCH_MAX]
            sent = [self.put_later(topic, one, body) for one in part]
            for opaque in sent:
                answer = self.answer_to(opaque)
                assert answer.code == 0, answer.remark
        wait_until(lambda: self.queue_end(topic, 0) >= end + len(properties),
                   "all messages readable")

    def put_later(self, topic: str, properties: dict[str, str], body: bytes) -> int:
        command = request(
            Code.SEND_MESSAGE_V2, send_fields(topic, properties=encode_properties(properties)),
            body)
        self.send(encode(command))
        return command.opaque

    def group(self, name: str, **changes: Any) -> None:
        """Configure a consumer group."""
        config = {
            "groupName": name, "consumeEnable": True, "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16,
            "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True, **changes,
        }
        answer = self.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, fastjson.dumps(config))
        assert answer.code == 0, answer.remark

    def beat(self, group: str, topics: dict[str, tuple[str, str, int]], *,
             model: str = "CLUSTERING", client_id: str = "member") -> Command:
        """A heartbeat; topics: topic -> (expression type, expression, version)."""
        return self.ask(Code.HEART_BEAT, None, fastjson.dumps({
            "clientID": client_id, "producerDataSet": [], "consumerDataSet": [{
                "groupName": group, "messageModel": model, "consumeType": "CONSUME_PASSIVELY",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
                "subscriptionDataSet": [
                    {"classFilterMode": False, "topic": topic, "subString": expression,
                     "tagsSet": [], "codeSet": [], "subVersion": version, "expressionType": kind}
                    for topic, (kind, expression, version) in topics.items()
                ],
            }],
        }))


def records(answer: Command) -> list[Record]:
    return decode_records(answer.body) if answer.code == 0 else []


def offsets(answer: Command) -> list[int]:
    """The queue offsets of the messages in an answer."""
    return [record.queue_offset for record in records(answer)]


def next_offset(answer: Command) -> int:
    return int((answer.ext or {})["nextBeginOffset"] or 0)


def numbered(count: int) -> list[dict[str, str]]:
    """Properties of `count` messages: n = 0, 1, 2, ..."""
    return [{"n": str(number), "TAGS": f"t{number % 10}"} for number in range(count)]


def all_matching(puller: Puller, topic: str, *, of: Any) -> list[int]:
    """Every offset that pulls from 0 to the end of the queue deliver; of: offset -> answer."""
    found: list[int] = []
    at, end = 0, puller.queue_end(topic, 0)
    while at < end:
        answer = of(at)
        assert answer.code in (0, 20), (answer.code, answer.remark)
        found += offsets(answer)
        assert next_offset(answer) > at
        at = next_offset(answer)
    return found
