"""A connection has its share of a serving process, and no more (N1 to N12, H5, H7, D3)."""
from __future__ import annotations

import contextlib
import time
from pathlib import Path

from mqcore.participants import COORDINATOR
from mqcore.shm import coordinator_rings
from mqcore.shm.coordinator_rings import ReadState
from mqcore.shm.filters import FilterWriter
from mqcore.shm.tables import TableWriter
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, encode, request
from tests.net.serving import Serving
from tests.net.test_another_coordinator import received
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields

TOPIC, GROUP = "T", "G"
PULL = 11
WAITS = 6                               # sysFlag: with a subscription, and held
TURN_MS = 20_000
FORWARDS = 32
TAGS = "||".join(map(str, range(300)))  # more than a pull's own table of codes has room for


class Filled:
    """A serving process with a queue of so many messages; and its writer and dispatcher."""

    def __init__(self, tmp_path: Path, messages: int, size: int, **changes: int) -> None:
        self.serving = Serving(tmp_path, file_entries=1_000, **changes)
        store = self.serving.store
        tables = TableWriter(store.segment)
        tables.publish_topic(TOPIC, read_queues=1, write_queues=1, perm=6)
        tables.publish_group(GROUP)
        self._writer, self._dispatcher = store.writer("async", 0), store.dispatcher()
        self._probe = AppendProbe(store.segment, producer=COORDINATOR.producer)
        self.store(messages, size)

    def store(self, messages: int, size: int) -> None:
        for number in range(messages):
            while not self._probe.send(TOPIC, 0, [bytes(size)], opaque=number,
                                       properties=b"TAGS\x01a"):
                self._writer.run(TURN_MS)
                self._probe.drain()
        self._writer.run(TURN_MS)
        assert self._dispatcher.run(TURN_MS) == 0


def pulls(count: int, tag: str, **changes: int) -> bytes:
    fields = pull_fields(TOPIC, group=GROUP, subscription=tag, **changes)
    return b"".join(encode(request(PULL, fields)) for _ in range(count))


def received_all(serving: Serving, peer: Peer, count: int) -> bool:
    """Whether so many answers come; the loop is turned meanwhile."""
    return all(received(serving, peer) for _ in range(count))


def is_closed(peer: Peer) -> bool:
    """Where no answer is under way."""
    try:
        peer.receive_frame(0.01)
    except Closed:
        return True
    except TimeoutError:
        return False
    raise AssertionError("an answer came")


def test_an_answer_for_a_connection_that_is_gone_reaches_no_other_one(tmp_path: Path) -> None:  # N4
    serving = Serving(tmp_path)
    asks = encode(request(Code.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}))
    with serving.connect() as peer:
        peer.send(asks)
        gone = serving.forwarded()[0].connection
    items: list[object] = []
    while coordinator_rings.Closed(gone) not in items:
        serving.turn()
        items += serving.rings.receive(10)
    with serving.connect() as peer:
        peer.send(asks)
        own = serving.forwarded()[0].connection
        serving.rings.send(gone, encode(Command(0, body=b"another one's")))
        serving.rings.send(own, encode(Command(0, body=b"its own")))
        assert received(serving, peer) == encode(Command(0, body=b"its own"))


def test_requests_of_one_connection_take_several_turns(tmp_path: Path) -> None:       # N9
    serving = Filled(tmp_path, 1_000, 100).serving
    with serving.connect() as peer:
        peer.send(pulls(300, "b"))
        while serving.figure("pulls") == 0:
            serving.one_turn()
        assert serving.figure("pulls") < 300
        assert received_all(serving, peer, 300)


def test_a_connection_that_reads_no_answers_has_no_more_requests_done(tmp_path: Path) -> None:  # N2
    serving = Filled(tmp_path, 40, 15_000).serving
    with serving.connect() as peer:
        serving.send(peer, pulls(200, "a"))
        for _ in range(200):
            serving.turn()
        assert 1 <= serving.figure("pulls") < 100
        assert received_all(serving, peer, 200)


def test_a_frame_s_memory_is_taken_as_its_bytes_come(tmp_path: Path) -> None:                  # N1
    """Ten announce 3 MiB each and send a little, where there are 8 MiB for all."""
    serving = Serving(tmp_path, connection_memory_bytes=8 << 20)
    frame = encode(request(Code.HEART_BEAT, {}, bytes(3 << 20)))
    peers = [serving.connect() for _ in range(10)]
    for peer in peers:
        serving.send(peer, frame[:200_000])
    for _ in range(20):
        serving.turn()
    for peer in peers:
        assert not is_closed(peer)
        peer.close()


def test_where_memory_ends_the_one_goes_that_waits_longest_with_about_as_much(     # N12
    tmp_path: Path,
) -> None:
    """The second has 100 KB more, and began a third of a second later."""
    serving = Serving(tmp_path, connection_memory_bytes=7_000_000)
    first, second, third = (serving.connect() for _ in range(3))
    began = time.monotonic()
    serving.send(first, encode(request(Code.HEART_BEAT, {}, bytes(3_400_000)))[:-1])
    wait_until(lambda: serving.turn() or time.monotonic() - began > 0.3, "its age")
    serving.send(second, encode(request(Code.HEART_BEAT, {}, bytes(3_500_000)))[:-1])
    third.send(encode(request(Code.HEART_BEAT, {}, bytes(1_000_000)))[:300_000])
    wait_until(lambda: serving.turn() or is_closed(first), "the end of the first")
    assert not is_closed(second)
    assert not is_closed(third)
    for peer in (first, second, third):
        peer.close()


def test_the_coordinator_hears_which_connection_does_not_read_and_reads_again(           # N6
    tmp_path: Path,
) -> None:
    serving = Serving(tmp_path)
    offered = encode(Command(Code.CHECK_TRANSACTION_STATE, body=bytes(100_000)))
    items: list[object] = []

    def heard(reads: bool) -> bool:
        serving.turn()
        items.extend(serving.rings.receive(100))
        return ReadState(connection, reads) in items

    with serving.connect() as peer:
        peer.send(encode(request(Code.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})))
        connection = serving.forwarded()[0].connection
        while not heard(False):
            serving.rings.offer(connection, offered)
        assert not heard(True)

        def reads_again() -> bool:
            with contextlib.suppress(TimeoutError):
                while True:
                    peer.receive_frame(0.01)
            return heard(True)

        wait_until(reads_again, "a word that it reads again")


def test_the_coordinator_has_no_more_of_a_connection_than_its_share(tmp_path: Path) -> None:   # N5
    serving = Serving(tmp_path)
    asks = encode(request(Code.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}))
    with serving.connect() as peer:
        peer.send(asks * 300)
        for _ in range(50):
            serving.turn()
        assert serving.figure("forwarded") == FORWARDS


def test_a_connection_has_half_of_the_room_for_requests_that_wait_for_a_decision(
    tmp_path: Path,
) -> None:                                                                                     # HR1
    serving = Serving(tmp_path, connection_memory_bytes=16 << 20)      # 4 MiB for all that wait

    def begin(peer: Peer, name: str) -> int:
        """How many of four sends to topics that nothing is known of wait."""
        for number in range(4):
            serving.send(peer, encode(request(
                Code.SEND_MESSAGE_V2, send_fields(f"{name}{number}"), b"x" * (700 << 10))))
        count = 0
        for _ in range(100):
            serving.turn()
            for item in serving.rings.receive(100):
                count += 1
                serving.rings.count_done(item.connection, item.shares, item.size)
            serving.rings.say_done()
        return count

    with serving.connect() as first, serving.connect() as second:
        assert begin(first, "first") == 2              # a third would be 2.05 MiB, above 2
        assert begin(second, "second") == 1            # two would be 1.37 MiB, above half of 2.63


def test_a_message_is_given_to_held_pulls_in_turns_of_limited_work(tmp_path: Path) -> None:    # H7
    filled = Filled(tmp_path, 1, 15_000, held_max=300)
    serving = filled.serving
    peers = [serving.connect() for _ in range(6)]
    for peer in peers:
        peer.send(pulls(50, "a", offset=1, sys_flag=WAITS, suspend_ms=60_000))
    wait_until(lambda: serving.turn() or serving.figure("held_pulls") == 300, "all are held")
    filled.store(1, 15_000)
    while serving.figure("held_pulls") == 300:
        serving.one_turn()
    assert serving.figure("held_pulls") > 0
    wait_until(lambda: serving.turn() or serving.figure("held_pulls") == 0, "all are answered")
    for peer in peers:
        peer.close()


def test_a_held_pull_is_answered_by_its_queue_s_first_message(tmp_path: Path) -> None:         # D3
    filled = Filled(tmp_path, 0, 0)
    serving = filled.serving
    with serving.connect() as peer:
        peer.send(pulls(1, "a", offset=0, sys_flag=WAITS, suspend_ms=60_000))
        wait_until(lambda: serving.turn() or serving.figure("held_pulls") == 1, "it is held")
        filled.store(1, 100)
        for _ in range(5):
            serving.turn()
        assert serving.figure("held_pulls") == 0


# -- filters that held pulls keep ------------------------------------------------------------------


def test_a_connection_s_held_pulls_have_filters_of_4_mib_in_all(tmp_path: Path) -> None:       # H5
    serving = Filled(tmp_path, 1, 100).serving
    FilterWriter(serving.store.segment).publish_request(
        "TAG", TAGS, now_ms=time.time_ns() // 1_000_000, codes=list(range(300_000)))
    with serving.connect() as peer:
        peer.send(pulls(6, TAGS, offset=1, sys_flag=WAITS, suspend_ms=60_000))
        wait_until(lambda: serving.turn() or serving.figure("pulls") == 6, "all pulls")
        assert serving.figure("held_pulls") == 3
