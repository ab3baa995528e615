"""The turn to read a connection keeps the rules of mqcore/client/network/reading.py."""
from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from mqcore.client.native.answers import FrameReader, Waiter, write_now
from mqcore.client.network import reading
from mqcore.client.network.reading import LEND_AFTER, ReadingTurn, Stored, Turn
from mqcore.wire.command import Command, encode, request, response

LONG_S = 1e9                    # a deadline that is not reached
OPAQUE = 77


class Loop:
    """What the turn asks of the loop, done when the test says so."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []
        self.planned: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        self.posted.append(function)

    def call_later(self, _seconds: float, function: Callable[[], None]) -> None:
        self.planned.append(function)

    def run(self, calls: list[Callable[[], None]]) -> None:
        while calls:
            calls.pop(0)()


class Transport:
    def __init__(self) -> None:
        self.is_reading = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return False


class Waits(Waiter):
    def __init__(self) -> None:
        self.deadline = LONG_S
        self.wants_place = True
        self.told: list[object] = []

    def stored(self, *place: Any) -> None:
        self.told.append(place)

    def answered(self, command: Command) -> None:
        self.told.append(command)


class Place:
    """One connection: its socket, who waits, and the turn."""

    def __init__(self) -> None:
        self.ours, self.peer = socket.socketpair()
        self.ours.setblocking(False)
        self.loop, self.transport, self.gate = Loop(), Transport(), threading.Lock()
        self.waiting: dict[int, Waiter] = {}
        self.requests: list[Command] = []
        self.frames = FrameReader(self.waiting, self.requests.append, self.requests.append)
        self.turn = ReadingTurn(cast(Any, self.loop), self.gate, self.waiting, self.frames,
                                lambda: self.frames.received(0))
        self.turn.open(cast(Any, self.transport), self.ours.fileno())

    def send_alone(self, count: int) -> None:
        """So many sends of a thread, each with its answer, which the loop reads."""
        for _ in range(count):
            self.waiting[1] = Waits()
            self.turn.note_alone()
            del self.waiting[1]

    def lend(self) -> None:
        self.send_alone(LEND_AFTER)
        self.turn.maybe_lend()
        assert self.turn._turn is Turn.FREE

    def wait_for(self, opaque: int = OPAQUE) -> Waits:
        self.waiting[opaque] = waits = Waits()
        return waits

    def read_in_thread(self) -> tuple[threading.Thread, list[Stored | None]]:
        found: list[Stored | None] = []
        thread = threading.Thread(target=lambda: found.append(self.turn.read(OPAQUE, LONG_S)))
        thread.start()
        return thread, found


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(reading, "READ_S_MAX", 60.0)
    made = Place()
    yield made
    made.ours.close()
    made.peer.close()


def answer(opaque: int = OPAQUE, code: int = 0) -> bytes:
    """The frame that says where a message is stored."""
    asked = request(310)
    asked.opaque = opaque
    made = response(asked, code)
    made.ext = {"msgId": "AB", "queueId": "3", "queueOffset": "9", "MSG_REGION": "R"}
    return bytes(encode(made))


STORED = (0, 3, 9, "AB", "R", "", True)


def test_the_turn_is_lent_after_some_sends_that_were_alone(place: Place) -> None:
    place.send_alone(LEND_AFTER - 1)
    place.turn.maybe_lend()
    assert place.transport.is_reading
    place.lend()
    assert not place.transport.is_reading


def test_the_turn_is_not_lent_while_somebody_waits(place: Place) -> None:
    place.send_alone(LEND_AFTER)
    place.wait_for()
    place.turn.maybe_lend()
    assert (place.transport.is_reading, place.turn._turn) == (True, Turn.LOOP)


def test_sends_beside_others_do_not_count_as_alone(place: Place) -> None:
    place.wait_for(5)
    place.send_alone(LEND_AFTER)
    place.waiting.clear()
    place.turn.maybe_lend()
    assert place.transport.is_reading


def test_a_thread_reads_its_answer_and_leaves_the_turn_free(place: Place) -> None:
    place.lend()
    waits = place.wait_for()
    place.peer.send(answer())
    assert place.turn.read(OPAQUE, LONG_S) == STORED
    assert (place.waiting, waits.told, place.loop.posted) == ({}, [], [])
    assert (place.turn._turn, place.frames.has_bytes) == (Turn.FREE, False)


def test_an_answer_that_comes_in_pieces_is_waited_for(place: Place) -> None:
    place.lend()
    place.wait_for()
    frame = answer()
    place.peer.send(frame[:3])
    thread, found = place.read_in_thread()
    for each in range(3, len(frame)):
        place.peer.send(frame[each:each + 1])
    thread.join(20)
    assert found == [STORED]


@pytest.mark.parametrize("first", [
    bytes(encode(request(40))), answer(5), answer(OPAQUE, 2), b"\xff\xff\xff\xff",
], ids=["request", "stray", "refusal", "nonsense"])
def test_what_is_not_its_answer_goes_to_the_loop_with_the_turn(
    place: Place, first: bytes,
) -> None:
    place.lend()
    place.wait_for()
    place.peer.send(first)
    assert place.turn.read(OPAQUE, LONG_S) is None
    assert (place.turn._turn, place.frames.has_bytes) == (Turn.RETURNING, True)
    assert not place.transport.is_reading
    assert OPAQUE in place.waiting


def test_the_loop_goes_on_with_the_frames_that_a_thread_left(place: Place) -> None:
    place.lend()
    waits = place.wait_for()
    place.peer.send(bytes(encode(request(40))) + answer())
    assert place.turn.read(OPAQUE, LONG_S) is None
    place.loop.run(place.loop.posted)
    assert (place.turn._turn, place.transport.is_reading) == (Turn.LOOP, True)
    assert [command.code for command in place.requests] == [40]
    assert waits.told == [STORED]


def test_a_thread_that_leaves_others_waiting_returns_the_turn(place: Place) -> None:
    place.lend()
    place.wait_for()
    place.wait_for(5)
    place.peer.send(answer())
    assert place.turn.read(OPAQUE, LONG_S) == STORED
    assert place.turn._turn is Turn.RETURNING


def test_one_thread_has_the_turn_at_a_time(place: Place) -> None:
    place.lend()
    place.wait_for()
    place.wait_for(5)
    thread, found = place.read_in_thread()
    while place.turn._turn is Turn.FREE:
        thread.join(0.001)
    assert place.turn.read(5, LONG_S) is None
    place.turn.take_back()
    assert not place.transport.is_reading       # the thread is at it, and returns it
    place.peer.send(answer())
    thread.join(20)
    assert found == [STORED]


def test_an_answer_that_the_loop_had_read_before_is_not_waited_for(place: Place) -> None:
    place.lend()
    assert place.turn.read(OPAQUE, LONG_S) is None
    assert place.turn._turn is Turn.FREE


def test_a_send_whose_time_is_over_takes_no_answer(place: Place) -> None:
    place.lend()
    place.wait_for()
    assert place.turn.read(OPAQUE, 0.0) is None
    assert place.turn._turn is Turn.RETURNING


def test_the_end_of_the_connection_wakes_the_thread(place: Place) -> None:
    place.lend()
    place.wait_for()
    thread, found = place.read_in_thread()
    while place.turn._turn is Turn.FREE:
        thread.join(0.001)
    with place.gate:
        place.turn.close()
    thread.join(20)
    assert (found, place.turn._turn, place.loop.posted) == ([None], Turn.LOOP, [])


def test_the_peers_end_is_left_to_the_loop(place: Place) -> None:
    place.lend()
    place.wait_for()
    place.peer.close()
    assert place.turn.read(OPAQUE, LONG_S) is None
    assert place.turn._turn is Turn.RETURNING


def test_a_thread_that_is_interrupted_returns_the_turn(
    place: Place, monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_descriptor: int, _timeout: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(reading, "readable", interrupted)
    place.lend()
    place.wait_for()
    with pytest.raises(KeyboardInterrupt):
        place.turn.read(OPAQUE, LONG_S)
    assert place.turn._turn is Turn.RETURNING


def test_the_turn_of_a_thread_that_was_interrupted_is_taken_back(place: Place) -> None:
    place.lend()
    waits = place.wait_for()
    thread, found = place.read_in_thread()
    while place.turn._turn is Turn.FREE:
        thread.join(0.001)
    place.turn.left(5)                          # another one's
    assert place.turn._turn is Turn.THREAD
    place.turn.left(OPAQUE)
    assert (place.turn._turn, place.transport.is_reading) == (Turn.LOOP, True)
    place.peer.send(answer())                   # had it not gone, it would read no more either
    thread.join(20)
    assert (found, waits.told, place.loop.posted) == ([None], [], [])


def test_a_turn_whose_return_was_interrupted_is_taken_back(place: Place) -> None:
    place.lend()
    place.wait_for()
    place.peer.send(answer(5))
    assert place.turn.read(OPAQUE, LONG_S) is None
    place.loop.posted.clear()
    place.turn.left(OPAQUE)
    assert (place.turn._turn, place.transport.is_reading) == (Turn.LOOP, True)


def test_what_the_socket_does_not_take_stays_before_the_rest(place: Place) -> None:
    frame, rest = bytearray(random.Random(1).randbytes(8 << 20)), bytearray(b"rest")
    assert write_now(place.ours.fileno(), bytearray(b"first"), rest)
    assert rest == b"rest"
    assert not write_now(place.ours.fileno(), frame, rest)
    assert place.peer.recv(5) == b"first"
    written = len(frame) + 4 - len(rest)
    assert 0 < written < len(frame)
    assert rest == frame[written:] + b"rest"
    place.peer.close()
    assert not write_now(place.ours.fileno(), bytearray(b"x"), rest)    # the next write meets it
    assert rest.startswith(b"x")


def test_something_else_that_waits_takes_the_turn_back(place: Place) -> None:
    place.lend()
    place.turn.note_other()
    assert (place.turn._turn, place.transport.is_reading) == (Turn.LOOP, True)


def test_a_turn_that_is_not_used_goes_back(place: Place) -> None:
    place.lend()
    place.wait_for()
    place.peer.send(answer())
    place.turn.read(OPAQUE, LONG_S)
    place.loop.planned.pop()()                  # it was used
    assert place.turn._turn is Turn.FREE
    place.loop.planned.pop()()
    assert (place.turn._turn, place.loop.planned) == (Turn.LOOP, [])


def test_lending_again_and_again_plans_one_look(place: Place) -> None:
    for _ in range(3):
        place.lend()
        place.turn.note_other()
    assert len(place.loop.planned) == 1
