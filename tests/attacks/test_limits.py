"""An address keeps to its limits, and nobody else waits for it (mqcore/net/serving/limits.pxd)."""
from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from mqcore.shm.limits import LimitTable
from mqcore.shm.segment import Segment, stale_segments
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.attacks.honest import Honest
from tests.attacks.many_addresses import address, connect
from tests.attacks.medians import assert_hardly_slower
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, Peer, send_fields, topic_fields
from tests.workers.processes import by_role

GREEDY, OTHER, EXEMPT = "127.0.0.7", "127.0.0.8", "127.0.0.1"       # of the honest client
CONNECTIONS = 5
ADDRESSES = 600
MESSAGES_PER_S = 300
IN_FLIGHT = 6
BYTES_PER_S = 1 << 20
SYSTEM_BUSY = 2


def limited(**limits: int) -> dict[str, object]:
    return {"processes.serving_count": 2, "limits.exempt_addresses": [f"{EXEMPT}/32"],
            **{f"limits.{key}": value for key, value in limits.items()}}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    settings = limited(address_connection_count=CONNECTIONS,
                       address_messages_per_s=MESSAGES_PER_S)
    with mqcore_up(tmp_path_factory.mktemp("limited"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def slow_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    settings = limited(address_in_flight_count=IN_FLIGHT,
                       address_bytes_per_s=BYTES_PER_S)
    with mqcore_up(tmp_path_factory.mktemp("slow"), settings) as running:
        yield running


def lives(peer: Peer) -> bool:
    try:
        return peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
    except (Closed, ConnectionError):
        return False


def crowd(target: MqcoreProcess, source: str, count: int) -> list[Peer]:
    """Connections of one address that were not closed at once."""
    made = [Peer(target.broker_addr, source=source) for _ in range(count)]
    alive = [peer for peer in made if lives(peer)]
    for peer in made:
        if peer not in alive:
            peer.close()
    return alive


def table(target: MqcoreProcess) -> LimitTable:
    name = next(one for one in stale_segments("mqcore-") if one.endswith(f"-{target.pid}"))
    return LimitTable(Segment.attach(name))


def close(peers: list[Peer]) -> None:
    for peer in peers:
        peer.close()


@pytest.mark.slow
def test_an_address_has_so_many_connections_over_all_processes(
        target: MqcoreProcess, honest: Honest) -> None:
    calm = honest.measure()
    with honest.span() as attacked:
        for _ in range(3):
            alive = crowd(target, GREEDY, 4 * CONNECTIONS)
            assert len(alive) == CONNECTIONS
            with Peer(target.broker_addr, source=OTHER) as other:
                assert lives(other)
            close(alive)
            wait_until(lambda: max((now for now, _ in table(target).places().values()),
                                   default=0) == 0, "closed connections are not counted")
        honest.until(lambda: len(attacked.sends_ms) >= 100, "100 sends")
    wait_until(lambda: "the most that [limits] allows" in target.output.read_text(),
               "a line in the log")
    assert_hardly_slower(attacked, calm)


def test_more_addresses_than_places_take_none_from_who_is_limited(
        target: MqcoreProcess, honest: Honest) -> None:
    """As many as a client can hold, all places of some keys; those who went leave theirs."""
    look = table(target)
    with contextlib.ExitStack() as held, honest.span():
        alive = crowd(target, GREEDY, CONNECTIONS)
        for number in range(ADDRESSES):
            held.enter_context(connect(target.broker_addr, address(number)))
        assert len(alive) == CONNECTIONS
        assert crowd(target, GREEDY, 3) == []
        close(alive)
        wait_until(lambda: len([1 for now, _ in look.places().values() if now]) > ADDRESSES // 2,
                   "they have places")
    wait_until(lambda: max(now for now, _ in look.places().values()) == 0, "places are free")
    again = crowd(target, GREEDY, 2 * CONNECTIONS)
    assert len(again) == CONNECTIONS
    close(again)


def test_what_a_killed_process_counted_is_free(target: MqcoreProcess) -> None:
    alive = crowd(target, GREEDY, CONNECTIONS)
    assert len(alive) == CONNECTIONS
    for role, pid in by_role(target).items():
        if role.startswith("pull-serving"):
            os.kill(pid, signal.SIGKILL)
    assert all(peer.is_closed() for peer in alive)
    close(alive)

    def as_many_again() -> bool:
        try:
            again = crowd(target, GREEDY, 2 * CONNECTIONS)
        except ConnectionError:
            return False
        close(again)
        return len(again) == CONNECTIONS

    wait_until(as_many_again, "as many connections as before", 30)


def test_sends_beyond_the_rate_are_refused_and_the_others_are_stored(
        target: MqcoreProcess, honest: Honest) -> None:
    calm = honest.measure()
    with honest.span() as attacked, Peer(target.broker_addr, source=GREEDY) as peer:
        peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("Fast", 1))
        began = time.monotonic()
        sends = [request(310, send_fields("Fast"), b"x") for _ in range(4 * MESSAGES_PER_S)]
        peer.send(b"".join(map(encode, sends)))
        answers = [peer.answer_to(one.opaque, 60) for one in sends]
        took_s = time.monotonic() - began
        refused = [one for one in answers if one.code]
        stored = len(answers) - len(refused)

        assert MESSAGES_PER_S <= stored <= MESSAGES_PER_S * (took_s + 1) + 1
        assert {one.code for one in refused} <= {SYSTEM_BUSY}
        assert all("limits.address_messages_per_s" in one.remark for one in refused)
        queue = {"topic": "Fast", "queueId": "0"}
        wait_until(lambda: peer.ask(30, queue).ext["offset"] == str(stored), "all are readable")
        wait_until(lambda: peer.ask(310, send_fields("Fast"), b"x").code == 0, "a send passes")
    assert_hardly_slower(attacked, calm)


def test_bytes_beyond_the_rate_wait_and_arrive(slow_target: MqcoreProcess) -> None:
    count, size = 12, 1 << 18
    with (Honest(slow_target.broker_addr) as honest,
          Peer(slow_target.broker_addr, source=GREEDY) as peer):
        calm = honest.measure()
        peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("Large", 1))
        with honest.span() as attacked:
            began = time.monotonic()
            sends = [request(310, send_fields("Large"), bytes(size)) for _ in range(count)]
            peer.send(b"".join(map(encode, sends)))
            assert {peer.answer_to(one.opaque, 60).code for one in sends} == {0}
            took_s = time.monotonic() - began
            # a second's worth, and the request that exceeds it, pass at once
            assert took_s >= (count - 1) * size / BYTES_PER_S - 1.2
            honest.until(lambda: len(attacked.sends_ms) >= 100, "100 sends")
    assert_hardly_slower(attacked, calm)


def test_requests_in_flight_stay_below_their_number_and_all_are_answered(
        slow_target: MqcoreProcess) -> None:
    look = table(slow_target)
    peers = [Peer(slow_target.broker_addr, source=GREEDY) for _ in range(4)]
    try:
        peers[0].ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("Many", 1))
        asked = [(peer, request(310, send_fields("Many"), b"x")) for peer in peers
                 for _ in range(150)]
        asked += [(peer, request(RequestCode.GET_BROKER_RUNTIME_INFO)) for peer in peers
                  for _ in range(20)]
        for peer in peers:
            peer.send(b"".join(encode(one) for to, one in asked if to is peer))
        most = 0
        for peer, one in asked:
            most = max([most, *(flying for _, flying in look.places().values())])
            assert peer.answer_to(one.opaque, 60).code == 0
        assert most <= IN_FLIGHT + 1         # two processes may take one each at the same moment
        wait_until(lambda: all(flying == 0 for _, flying in look.places().values()),
                   "nothing is in flight")
    finally:
        close(peers)
