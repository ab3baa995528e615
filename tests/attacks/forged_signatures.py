"""Requests whose signatures are wrong, and signed requests of which something was changed."""
from __future__ import annotations

import base64
import random
import time

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, encode, next_opaque
from tests.acl.requests import signed
from tests.hostile.mutate import Mutator
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields

ACCOUNT = ("the-captured", "captured-secret")
TOPIC, BODY = "captured", b"as it was signed"
FLOOD = 200                     # requests on their way at a time
MUTATED = 40
ANSWER_S = 0.01                 # what a frame may wait for an answer that may never come
SIGNATURE_BYTES = 20


def made(code: int, fields: dict[str, str | None], body: bytes = b"") -> Command:
    given = {name: value for name, value in fields.items() if value is not None}
    command = signed(code, given, *ACCOUNT, body)
    command.opaque = next_opaque()
    return command


def captured() -> list[Command]:
    """What somebody has seen of an account's requests."""
    return [made(Code.SEND_MESSAGE_V2, send_fields(TOPIC), BODY),
            made(Code.PULL_MESSAGE, pull_fields(TOPIC, group=TOPIC)),
            made(Code.UPDATE_CONSUMER_OFFSET, {"consumerGroup": TOPIC, "topic": TOPIC,
                                               "queueId": "0", "commitOffset": "0"}),
            made(Code.HEART_BEAT, {}, b'{"clientID":"captured","producerDataSet":[],'
                                      b'"consumerDataSet":[]}')]


def flood(broker_addr: str, source: str, rng: random.Random) -> None:
    """So many requests with the signature of nothing, and their answers."""
    commands = []
    for _ in range(FLOOD):
        command = rng.choice(captured())
        assert command.ext is not None
        command.ext["Signature"] = base64.b64encode(rng.randbytes(SIGNATURE_BYTES)).decode()
        commands.append(command)
    with Peer(broker_addr, source=source) as peer:
        peer.send(b"".join(map(encode, commands)))
        for command in commands:
            peer.answer_to(command.opaque)


def mutate(broker_addr: str, source: str, rng: random.Random) -> None:
    """One request as it was seen, and so many changed ones, on as many connections as they end."""
    seen = captured()
    with Peer(broker_addr, source=source) as peer:
        peer.send(encode(seen[0]))
        peer.answer_to(seen[0].opaque)
    mutator = Mutator(rng.randrange(1 << 32), "broker", [encode(one) for one in seen])
    left = MUTATED
    while left:
        with Peer(broker_addr, source=source) as peer:
            try:
                while left:
                    left -= 1
                    peer.send(mutator.bytes())
                    peer.silent_for(ANSWER_S)
            except (Closed, ConnectionError):      # not even a frame
                continue


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    """One after the other, from changing addresses."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        source = f"127.0.0.{rng.randrange(2, 200)}"
        flood(broker_addr, source, rng)
        mutate(broker_addr, source, rng)
