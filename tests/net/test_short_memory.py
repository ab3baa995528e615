"""Limits that are lower while the memory of all connections is short (memory N13, scan N18)."""
from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import decode, encode, request
from mqcore.wire.records import decode_records
from tests.net.serving import Serving, filled
from tests.wire_live.peer import Peer, pull_fields

MIB = 1 << 20
BUDGET = 16 * MIB                    # short from 14 MiB on
HOG_FRAME = 15 * MIB
MESSAGES, BODY_BYTES = 50, 8_000
REPLAY_FLAG = 1 << 30
SMALL_SOCKET = 4_096
QUIET_TURNS = 20
TURNS_MAX = 5_000


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """With MESSAGES in its one queue."""
    end = filled(tmp_path, [b"x" * BODY_BYTES] * MESSAGES)
    made = Serving(tmp_path, connection_memory_bytes=BUDGET, memory_bytes_max=MIB,
                   replay_count_max=64, replay_bytes_max=MIB)
    made.open_topic(end)
    return made


@contextlib.contextmanager
def spent(serving: Serving, whether: bool) -> Iterator[None]:
    """A frame that does not end takes most of the budget."""
    if not whether:
        yield
        return
    with serving.connect() as hog:
        serving.send(hog, struct.pack(">II", HOG_FRAME - 4, 100))
        while serving.memory_bytes < 14 * MIB:
            serving.send(hog, bytes(MIB))
        yield


@pytest.mark.parametrize(("short", "unread"), [(False, MIB), (True, 64 << 10)])      # N13
def test_who_does_not_read_is_not_read_from_so_many_answers_on(
    serving: Serving, short: bool, unread: int
) -> None:
    pull = encode(request(RequestCode.PULL_MESSAGE, pull_fields("T", count=1)))
    with spent(serving, short), serving.connect() as reader, serving.connect(
            receive_buffer_bytes=SMALL_SOCKET) as deaf:
        serving.send(reader, pull)
        one = len(answer(serving, reader))
        sent_before = serving.figure("bytes_out")
        deaf.socket.setblocking(False)
        deaf.socket.send(pull * 3_000)
        handled, quiet = 0, 0
        while quiet < QUIET_TURNS:
            serving.turn()
            quiet = quiet + 1 if serving.figure("pulls") - 1 == handled else 0
            handled = serving.figure("pulls") - 1
        left = handled * one - (serving.figure("bytes_out") - sent_before)
        assert unread <= left < unread + one


@pytest.mark.parametrize(("short", "count"), [(False, 50), (True, 32)])               # N18
def test_a_replay_brings_no_more_than_a_pull_while_memory_is_short(
    serving: Serving, short: bool, count: int
) -> None:
    with spent(serving, short), serving.connect() as peer:
        serving.send(peer, encode(request(RequestCode.PULL_MESSAGE, pull_fields(
            "T", count=100, sys_flag=4 | REPLAY_FLAG))))
        found = decode(answer(serving, peer)[4:])
        assert found.code == 0
        assert len(decode_records(found.body)) == count


def answer(serving: Serving, peer: Peer) -> bytes:
    """A frame for a client, with its length."""
    for _ in range(TURNS_MAX):
        serving.turn()
        try:
            return peer.receive_frame(0.01)
        except TimeoutError:
            continue
    raise AssertionError("no answer came")
