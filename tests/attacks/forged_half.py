"""
A whole half message in the body of an ordinary one, and an end of its transaction that names the
place in the body.
"""
from __future__ import annotations

import random
import struct
import time
import zlib
from dataclasses import dataclass

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command
from mqcore.wire.ids import parse_offset_message_id
from tests.wire_live.peer import Peer, send_fields, topic_fields

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
GROUP = "forger"
COMMIT = 8
BODY_AT = 88                    # of a record with IPv4 hosts (docs/formats.md)
HOST = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)
TRIES_MAX = 400                 # others send too, and the place has to be guessed


@dataclass(frozen=True)
class Forged:
    """Where a forged record lies, and what an end of it has to say."""

    position: int
    carrier: int                # the position of the message whose body holds it

    def end(self, **other: str) -> dict[str, str | None]:
        return {"producerGroup": GROUP, "tranStateTableOffset": "0",
                "commitLogOffset": str(self.position), "commitOrRollback": str(COMMIT),
                "fromTransactionCheck": "false", "msgId": "M", "transactionId": "M", **other}


def record(topic: str, position: int, body: bytes, properties: dict[str, str], *,
           queue_id: int = 0, queue_offset: int = 0) -> bytes:
    """A commit log record (store.md 2) as a broker would write it at that position."""
    text = "".join(f"{key}\x01{value}\x02" for key, value in properties.items()).encode()
    name = topic.encode()
    tail = (struct.pack(">i", len(body)) + body + bytes([len(name)]) + name
            + struct.pack(">H", len(text)) + text)
    head = struct.pack(
        ">iiiiiqqiq8sq8siq", 0, 0xDAA320A7 - (1 << 32), zlib.crc32(body) & 0x7FFFFFFF, queue_id, 0,
        queue_offset, position, 0, 1_700_000_000_000, HOST, int(time.time() * 1000), HOST, 0, 0)
    whole = head + tail
    return struct.pack(">i", len(whole)) + whole[4:]


def half(position: int, real_topic: str, real_queue: int, body: bytes = b"forged") -> bytes:
    return record(HALF_TOPIC, position, body, {
        "PGROUP": GROUP, "REAL_TOPIC": real_topic, "REAL_QID": str(real_queue), "UNIQ_KEY": "M"})


def position_of(answer: Command) -> int:
    return parse_offset_message_id((answer.ext or {})["msgId"] or "")[2]


def smuggle(peer: Peer, topic: str, made: object) -> Forged:
    """
    Send messages until the body of one holds `made(position)` at that very position.

    topic: there already; made: from a log position to bytes of one length.
    """
    length = len(made(0))                                           # type: ignore[operator]
    guess = 0
    for _ in range(TRIES_MAX):
        answer = peer.ask(Code.SEND_MESSAGE_V2, send_fields(topic),
                          made(guess + BODY_AT))                    # type: ignore[operator]
        assert answer.code == 0, (answer.code, answer.remark)
        at = position_of(answer)
        if at == guess:
            return Forged(at + BODY_AT, at)
        guess = at + BODY_AT + length + 1 + len(topic) + 2 + len("CLUSTER\x01DefaultCluster")
    raise AssertionError("no forged record got to the place that it names")


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    end = time.monotonic() + seconds
    names = ["../../outside", "/tmp/outside", "a/b", "a b", "..", "forger", "\x7f", "x" * 127]
    with Peer(broker_addr) as peer:
        assert peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("forger", 1)).code == 0
        while time.monotonic() < end:
            name, queue = rng.choice(names), rng.choice([0, 7, 65_535, 2**31 - 1])
            found = smuggle(peer, "forger", lambda at: half(at, name, queue))  # noqa: B023
            for code, fields in (
                    (Code.END_TRANSACTION, found.end()),
                    (Code.VIEW_MESSAGE_BY_ID, {"offset": str(found.position)})):
                assert peer.ask(code, fields).code != 0
