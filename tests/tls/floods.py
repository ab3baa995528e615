"""
Peers that begin handshakes, or talk nonsense, to cost a server its time, in processes of their own.

    with flood("hello", address, rate=2000) as counts:
        ...                                       # an honest client works
    counts.begun, counts.answered, counts.seconds

They stand for other machines, so they take what is left of this one (tests/support/idle.py), unless
`idle` is False.

Kinds: `whole` handshakes, natively (mqcore/bench/handshakes.pyx); `hello`, one recorded ClientHello
again and again, which costs its sender nothing and the server its signature; `byte by byte`, the
same in pieces; `half-open`, the beginning of a record, on connections that stay until the server
ends them; `silent`, connections that say nothing.

And in the clear, for name servers (OTHERS): `garbage`, bytes that are no frames; `large`, brokers
of 127.9.0.1 that register thousands of topics and end; `badly signed`, registrations whose
signature is wrong, LIES of them at once.
"""
from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import random
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.sharedctypes import SynchronizedArray

from mqcore.bench.handshakes import HandshakeLoad
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.namesrv.harness import registration
from tests.support.idle import take_what_is_left
from tests.support.mqcore_process import die_with_parent
from tests.tls.certificates import careless

PROCESSES, THREADS = 2, 8
ANSWER_S = 10.0
HELD_MAX = 10_000                   # connections that are kept open at a time
ELSEWHERE = "127.0.0.9"             # where they come from who finish their handshakes
SPAN_MS = 50                        # between two looks at whether it is over
PIECE_BYTES, PIECE_S = 16, 0.01     # of a hello that comes slowly
RECORD_BEGIN = b"\x16\x03\x01\x02\x00\x01"         # of 512 bytes
LARGE_TOPICS = 5_000
TRUSTED = "127.9.0.1"               # where those who register come from
LIES, LIE_BYTES = 20, 2 << 10       # requests at once, their bodies
GARBAGE_BYTES = 4 << 10
BEGUN, ANSWERED = 0, 1

KINDS = ("whole", "hello", "byte by byte", "half-open", "silent")
OTHERS = ("garbage", "large", "badly signed")


@dataclass(frozen=True)
class Counts:
    """What the peers did so far: connections, and those that the server answered or ended."""

    _shared: SynchronizedArray[int]
    _since: float

    @property
    def seconds(self) -> float:
        """Since they began."""
        return time.monotonic() - self._since

    @property
    def begun(self) -> int:
        return self._shared[BEGUN]

    @property
    def answered(self) -> int:
        return self._shared[ANSWERED]


def client_hello() -> bytes:
    """What a client of this interpreter's OpenSSL begins with."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        careless().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@contextlib.contextmanager
def flood(kind: str, address: str, *, rate: float, idle: bool = True) -> Iterator[Counts]:
    """Peers of a kind at an address, `rate` new connections a second, while the block runs."""
    context = multiprocessing.get_context("fork")
    shared = context.Array(ctypes.c_int64, 2)
    stop = context.Event()
    processes = [context.Process(
        target=_process, args=(kind, address, rate / PROCESSES, shared, stop, idle), daemon=True)
        for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    try:
        yield Counts(shared, time.monotonic())
    finally:
        stop.set()
        for process in processes:
            process.join(ANSWER_S + 5)
            process.kill()
            process.join()


def _process(kind: str, address: str, rate: float, shared: SynchronizedArray[int],
             stop: threading.Event, idle: bool) -> None:
    die_with_parent(signal.SIGKILL)
    if idle:
        take_what_is_left()
    if kind == "whole":
        _shake(address, rate, shared, stop)
        return
    said = said_at_first(kind)
    host, _, port = address.rpartition(":")
    peers = [threading.Thread(target=_peer, args=(
        kind, (host, int(port)), said, rate / THREADS, shared, stop)) for _ in range(THREADS)]
    for peer in peers:
        peer.start()
    for peer in peers:
        peer.join()


def _shake(address: str, rate: float, shared: SynchronizedArray[int],
           stop: threading.Event) -> None:
    load = HandshakeLoad(address, rate, ELSEWHERE)
    begun = answered = 0
    while not stop.is_set():
        load.work(SPAN_MS)
        with shared.get_lock():
            shared[BEGUN] += load.begun - begun
            shared[ANSWERED] += load.answered - answered
        begun, answered = load.begun, load.answered
    load.close()


def said_at_first(kind: str) -> bytes:
    """What a peer says at first."""
    if kind == "large":
        return encode(registration([f"large-{number}" for number in range(LARGE_TOPICS)],
                                   name="large", address=f"{TRUSTED}:{random.randrange(1 << 16)}",
                                   compressed=True))
    if kind == "badly signed":
        return LIES * encode(request(RequestCode.REGISTER_BROKER, {
            "brokerName": "liar", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": "0",
            "AccessKey": "the-admin", "Signature": "c2lnbmVkIGJ5IG5vYm9keQ=="}, bytes(LIE_BYTES)))
    if kind == "garbage":
        return b"\x7f" + random.randbytes(GARBAGE_BYTES)
    return client_hello()


def _peer(kind: str, place: tuple[str, int], said: bytes, rate: float,
          shared: SynchronizedArray[int], stop: threading.Event) -> None:
    """Begins connections when they are due; one that is late makes up for it."""
    act: Callable[[socket.socket], bool] = {
        "hello": lambda one: _answered(one, said),
        "byte by byte": lambda one: _slowly(one, said, stop),
        **dict.fromkeys(OTHERS, lambda one: _answered(one, said)),
    }.get(kind, lambda one: False)
    source = (TRUSTED, 0) if kind == "large" else None
    held: list[socket.socket] = []
    due = time.monotonic()
    while not stop.is_set():
        stop.wait(max(due - time.monotonic(), 0))
        due = max(due + 1 / rate, time.monotonic() - 1)
        with contextlib.suppress(OSError):
            one = socket.create_connection(place, ANSWER_S, source)
            with shared.get_lock():
                shared[BEGUN] += 1
            answered = act(one)
            if kind == "half-open":
                one.sendall(RECORD_BEGIN)
            with shared.get_lock():
                shared[ANSWERED] += answered
            if kind in ("half-open", "silent"):
                held.append(one)
                if len(held) > HELD_MAX // (PROCESSES * THREADS):
                    held.pop(0).close()
            else:
                one.close()
    for one in held:
        one.close()


def _answered(one: socket.socket, said: bytes) -> bool:
    one.sendall(said)
    return bool(one.recv(1 << 16))


def _slowly(one: socket.socket, hello: bytes, stop: threading.Event) -> bool:
    for at in range(0, len(hello), PIECE_BYTES):
        one.sendall(hello[at:at + PIECE_BYTES])
        stop.wait(PIECE_S)
    return bool(one.recv(1 << 16))
