"""Sends and pulls over one plain connection, for tests that look at every answer."""
from __future__ import annotations

from collections.abc import Iterable

from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, decode, encode
from mqcore.wire.records import Record, body_crc, decode_records
from tests.wire_live.peer import Peer

GROUP = "G"
HAS_SUBSCRIPTION = 4             # of a pull's sysFlag
SENDS_AT_ONCE = 50
FOUND, NOTHING_NEW, AGAIN, MOVED = 0, 19, 20, 21


def send_frame(topic: str, body: bytes, *, properties: str = "", opaque: int = 1) -> bytes:
    """A send to queue 0, as bytes."""
    return encode(Command(RequestCode.SEND_MESSAGE, version=409, opaque=opaque, ext={
        "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "1", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1",
        "flag": "0", "properties": properties, "reconsumeTimes": "0", "unitMode": "false",
        "batch": "false"}, body=body))


def pull_frame(topic: str, offset: int, *, count: int = 32, opaque: int = 1) -> bytes:
    """A pull from queue 0 that does not wait, as bytes."""
    return encode(Command(RequestCode.PULL_MESSAGE, version=409, opaque=opaque, ext={
        "consumerGroup": GROUP, "topic": topic, "queueId": "0", "queueOffset": str(offset),
        "maxMsgNums": str(count), "sysFlag": str(HAS_SUBSCRIPTION), "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG"}))


class Client:
    """One connection. Answers to sends come in order, those to pulls need not."""

    def __init__(self, address: str, *, receive_buffer_bytes: int = 0) -> None:
        self.peer = Peer(address, receive_buffer_bytes=receive_buffer_bytes)

    def ask(self, code: int, ext: dict[str, str | None] | None = None) -> Command:
        self.peer.send(encode(Command(code, version=409, opaque=1, ext=ext)))
        return self.answer()

    def answer(self) -> Command:
        return decode(self.peer.receive_frame()[4:])

    def send(self, topic: str, body: bytes, *, properties: str = "") -> Command:
        self.peer.send(send_frame(topic, body, properties=properties))
        return self.answer()

    def make_topic(self, topic: str) -> None:
        """A topic of one queue: pipelined sends to an unknown topic would lose their order."""
        answer = self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"})
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def send_many(self, topic: str, bodies: Iterable[bytes]) -> list[int]:
        """Send in order, some at a time; the queue offsets. AssertionError if one is not stored."""
        frames = [send_frame(topic, body) for body in bodies]
        answers = []
        for first in range(0, len(frames), SENDS_AT_ONCE):
            some = frames[first:first + SENDS_AT_ONCE]
            self.peer.send(b"".join(some))
            answers += [self.answer() for _ in some]
        refused = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
        assert not refused, refused[0]
        return [int((answer.ext or {})["queueOffset"] or -1) for answer in answers]

    def pull(self, topic: str, offset: int, *, count: int = 32) -> tuple[int, int, list[Record]]:
        """(code, next offset, records), the bodies checked."""
        self.peer.send(pull_frame(topic, offset, count=count))
        return self.pulled()

    def pulled(self) -> tuple[int, int, list[Record]]:
        """The answer to the one pull that was sent before."""
        return self.opened(self.answer())

    @staticmethod
    def opened(answer: Command) -> tuple[int, int, list[Record]]:
        """(code, next offset, records) of an answer to a pull, the bodies checked."""
        assert answer.code in (FOUND, NOTHING_NEW, AGAIN, MOVED), answer
        records = decode_records(answer.body) if answer.code == FOUND else []
        for record in records:
            assert body_crc(record.body) == record.body_crc
        return answer.code, int((answer.ext or {}).get("nextBeginOffset") or -1), records

    def offset(self, code: RequestCode, topic: str) -> int:
        """GET_MAX_OFFSET or GET_MIN_OFFSET of queue 0."""
        answer = self.ask(code, {"topic": topic, "queueId": "0"})
        return int((answer.ext or {})["offset"] or -1)

    def consume(self, topic: str, offset: int = 0) -> list[bytes]:
        """All bodies from an offset on."""
        bodies: list[bytes] = []
        while True:
            code, offset, records = self.pull(topic, offset)
            if code != FOUND:
                assert code == NOTHING_NEW, code
                return bodies
            bodies += [record.body for record in records]

    def close(self) -> None:
        self.peer.close()
