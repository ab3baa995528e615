"""Commits of offsets for groups and topics that nobody else has ever heard of."""
from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request

BATCH = 500
GROUP = "invented_group_" + "g" * 91        # long names make a table large with few of them
TOPIC = "InventedTopic" + "T" * 100
DIGITS = 13                                 # of a number: all commits have one length


def connect(address: str, source: str) -> socket.socket:
    """A connection from an address of this machine: 127.0.0.2, 127.0.0.3 ..."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 30, (source, 0))


def group_of(number: int) -> str:
    return f"{GROUP}_{number:0{DIGITS}}"


def topic_of(number: int) -> str:
    return f"{TOPIC}{number % 97:02}"


def commits(start: int, count: int) -> Iterator[bytes]:
    """Batches of one-way commits, each for a group and topic of its own; encoded once for all."""
    zero = "0" * DIGITS
    frame = encode(request(RequestCode.UPDATE_CONSUMER_OFFSET, {
        "consumerGroup": group_of(0), "topic": topic_of(0), "queueId": "0", "commitOffset": zero,
    }, oneway=True)).replace(b"%", b"%%")
    for text, form in ((group_of(0), f"{GROUP}_%0{DIGITS}d"), (topic_of(0), f"{TOPIC}%02d"),
                       (zero, f"%0{DIGITS}d")):
        frame = frame.replace(text.encode(), form.encode())
    for first in range(start, start + count, BATCH):
        yield b"".join(frame % (number, number % 97, number)
                       for number in range(first, min(first + BATCH, start + count)))


def flood(address: str, source: str, start: int, count: int) -> None:
    """Send so many commits, and wait until the last was looked at."""
    with connect(address, source) as connection:
        for batch in commits(start, count):
            connection.sendall(batch)
        connection.sendall(encode(request(RequestCode.QUERY_CONSUMER_OFFSET, {
            "consumerGroup": "g", "topic": "t", "queueId": "0"})))
        assert connection.recv(4)


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    """Invent pairs from changing addresses for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        source = f"127.0.0.{rng.randrange(2, 200)}"
        flood(broker_addr, source, rng.randrange(1 << 40), 5_000)
