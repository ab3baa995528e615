"""A transactional producer on the wire: half messages, ends, and the checks that it is asked."""
from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command
from mqcore.wire.properties import encode_properties
from mqcore.wire.records import Record, decode_record, decode_records
from tests.support.waiting import wait_until
from tests.wire_live.peer import DEADLINE_S, Peer, pull_fields, send_fields, topic_fields

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
CHECK_STATE = 39
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
_names = itertools.count(1)


def unique(prefix: str) -> str:
    return f"{prefix}{next(_names)}"


class Asked:
    """One check (39): what its header and its body say."""

    def __init__(self, command: Command) -> None:
        fields = command.ext or {}
        self.one_way = command.is_oneway
        self.half_offset = int(fields["tranStateTableOffset"] or -1)
        self.position = int(fields["commitLogOffset"] or -1)
        self.message_id = fields.get("msgId")
        self.transaction_id = fields.get("transactionId")
        self.offset_message_id = fields["offsetMsgId"]
        self.record = decode_record(command.body)


class Producer(Peer):
    """One connection that is a member of a producer group."""

    def __init__(self, address: str, group: str, *, receive_buffer_bytes: int = 0) -> None:
        super().__init__(address, receive_buffer_bytes=receive_buffer_bytes)
        self.group = group
        self.asked: list[Asked] = []
        self.heartbeat = fastjson.dumps({"clientID": unique("client"), "consumerDataSet": [],
                                         "producerDataSet": [{"groupName": group}]})
        assert self.ask(Code.HEART_BEAT, None, self.heartbeat).code == 0

    def receive(self, timeout_s: float = DEADLINE_S) -> Command:
        """As of a peer; checks are noted on the way."""
        command = super().receive(timeout_s)
        if command.code == CHECK_STATE and not command.is_response:
            self.asked.append(Asked(command))
        return command

    def topic(self, queues: int = 2) -> str:
        name = unique("Tx")
        self.topic_named(name, queues)
        return name

    def topic_named(self, name: str, queues: int) -> None:
        assert self.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(name, queues)).code == 0

    def prepare(self, topic: str, body: bytes, queue_id: int = 0, born_ms: int | None = None,
                **properties: str) -> Record:
        """A half message; born_ms: now unless said."""
        text = encode_properties({"TRAN_MSG": "true", "PGROUP": self.group, "WAIT": "true",
                                  "UNIQ_KEY": unique("KEY"), **properties})
        born = time.time_ns() // 1_000_000 if born_ms is None else born_ms
        answer = self.ask(Code.SEND_MESSAGE_V2, send_fields(
            topic, queue_id=queue_id, properties=text, sys_flag=4, born_ms=born), body)
        assert answer.code == 0, answer.remark
        return self.view(int(((answer.ext or {})["msgId"] or "")[-16:], 16))

    def view(self, position: int) -> Record:
        answer = self.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": str(position)})
        assert answer.code == 0, answer.remark
        return decode_records(answer.body)[0]

    def end(self, half: Record | Asked, decision: int) -> Command:
        """END_TRANSACTION, and its answer."""
        if isinstance(half, Asked):
            offset, position = half.half_offset, half.position
        else:
            offset, position = half.queue_offset, half.physical_offset
        return self.ask(Code.END_TRANSACTION, {
            "producerGroup": self.group, "tranStateTableOffset": str(offset),
            "commitLogOffset": str(position), "commitOrRollback": str(decision), "msgId": "m",
            "fromTransactionCheck": "true" if isinstance(half, Asked) else "false"})

    def wait_asked(self, count: int = 1, body: bytes | None = None,
                   deadline_s: float = DEADLINE_S) -> list[Asked]:
        """Wait until `count` checks came (about messages with `body`); takes them."""
        end = time.monotonic() + deadline_s

        def matching() -> list[Asked]:
            return [asked for asked in self.asked if body in (None, asked.record.body)]

        while len(matching()) < count:
            left = end - time.monotonic()
            assert left > 0, f"{len(matching())} of {count} checks within {deadline_s} s"
            try:
                self.receive(left)
            except TimeoutError:
                continue
        found = matching()
        self.asked = [asked for asked in self.asked if asked not in found]
        return found

    def stored(self, topic: str, queue_id: int = 0) -> list[bytes]:
        """The bodies of a queue, as a consumer sees them."""
        bodies: list[bytes] = []
        offset = 0
        while True:
            answer = self.ask(Code.PULL_MESSAGE, pull_fields(
                topic, group="LOOKER", queue_id=queue_id, offset=offset))
            if answer.code != 0:
                return bodies
            records = decode_records(answer.body)
            bodies += [record.body for record in records]
            offset += len(records)

    def offset(self, topic: str) -> int:
        """How far the transaction-check process has settled a system queue."""
        answer = self.ask(Code.QUERY_CONSUMER_OFFSET, {
            "consumerGroup": "CID_RMQ_SYS_TRANS", "topic": topic, "queueId": "0"})
        return int((answer.ext or {})["offset"] or 0) if answer.code == 0 else 0

    def end_of(self, topic: str, queue_id: int = 0) -> int:
        answer = self.ask(Code.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
        return int((answer.ext or {})["offset"] or 0)

    def until(self, condition: Callable[[], bool], what: str,
              deadline_s: float = DEADLINE_S) -> None:
        wait_until(condition, what, deadline_s)


def settled(producer: Producer) -> None:
    """Until every half message and op record that there is now is passed, and all can be pulled."""
    marker = producer.topic()
    assert producer.ask(Code.SEND_MESSAGE_V2, send_fields(marker), b"behind them").code == 0
    producer.until(lambda: producer.stored(marker) != [], "all has its place in a queue")
    halves = producer.end_of(HALF_TOPIC)
    producer.until(lambda: producer.offset(HALF_TOPIC) >= halves, "all half messages settled")
    ops = producer.end_of(OP_TOPIC)
    producer.until(lambda: producer.offset(OP_TOPIC) >= ops, "all op records passed")
