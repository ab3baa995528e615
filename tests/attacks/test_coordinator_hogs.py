"""Whatever one connection asks of the coordinator, the others' heartbeats and locks go on."""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mqcore.wire.codes import RequestCode as Code
from tests.attacks import coordinator_hogs as hogs
from tests.attacks.honest import Honest, Span, median
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.wire_live.peer import Peer, topic_fields

BEATS = 20
REST = 0.5                        # an attack lasts as long as the heartbeats beside it
DELAY_MS_MAX = 100.0              # that the lane of heartbeats may add ...
BUSY = 10                         # ... and what a busy machine adds, in beats of a calm moment


@contextmanager
def attacking(attack: Callable[[Callable[[], bool]], None]) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=attack, args=(over.is_set,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60.0)
        assert not thread.is_alive()


def attacked(honest: Honest, attack: Callable[[Callable[[], bool]], None]) -> Span:
    with attacking(attack), honest.span() as span:
        honest.until(lambda: len(span.beats_ms) >= BEATS, f"{BEATS} heartbeats", 120.0)
    return span


def assert_prompt(span: Span, calm: Span) -> None:
    """Half of them and more, as the machine may do other things: in its time."""
    limit = DELAY_MS_MAX + BUSY * median(calm.beats_ms)
    assert median(span.beats_ms) <= limit, f"calm: {calm.line()}; attacked: {span.line()}"


@pytest.fixture(scope="module", autouse=True)
def tables(target: MqcoreProcess) -> None:
    hogs.make_tables(target.broker_addr)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_heartbeats_go_on_beside_every_request_over_the_largest_topic(
    target: MqcoreProcess, honest: Honest, watch: Watch, part: int
) -> None:
    calm = honest.measure()
    codes = hogs.CODES[part::4]
    span = attacked(honest, lambda is_over: hogs.flood(target.broker_addr, codes, is_over))
    assert_prompt(span, calm)


@pytest.mark.slow
def test_heartbeats_go_on_beside_time_spans_of_65_535_queues(
    target: MqcoreProcess, honest: Honest, watch: Watch
) -> None:
    calm = honest.measure()
    span = attacked(honest, lambda is_over: hogs.flood(
        target.broker_addr, [Code.QUERY_CONSUME_TIME_SPAN] * 128, is_over))
    assert_prompt(span, calm)


@pytest.mark.slow
@pytest.mark.parametrize("attack", [hogs.other_heartbeats, hogs.new_groups, hogs.large_bodies])
def test_heartbeats_go_on_beside_those_of_a_hog(
    target: MqcoreProcess, honest: Honest, watch: Watch,
    attack: Callable[[str, Callable[[], bool]], None],
) -> None:
    calm = honest.measure()
    span = attacked(honest, lambda is_over: attack(target.broker_addr, is_over))
    assert_prompt(span, calm)


def test_the_broker_stays_with_its_name_server(
    target: MqcoreProcess, honest: Honest, watch: Watch
) -> None:
    with attacking(lambda is_over: hogs.flood(
            target.broker_addr, [Code.QUERY_CONSUME_TIME_SPAN] * 128, is_over)):
        with Peer(target.broker_addr) as peer:
            began = time.monotonic()
            assert peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("beside", 1)).code == 0
            assert time.monotonic() - began < 10.0
        with Peer(target.namesrv_addr) as names:
            assert names.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "beside"}).code == 0
