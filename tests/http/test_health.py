"""Which answers a probe gets in which state of the processes and the log."""
from __future__ import annotations

import os
import time

import pytest

from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import Settings
from mqcore.http import health
from mqcore.layout import WORKER_ABSENT, WORKER_RUNNING, WORKER_STARTING, WORKER_STOPPED
from mqcore.participants import COORDINATOR, DISPATCHER, SERVING, SUPERVISOR, WRITER
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.segment import Segment
from tests.store.harness import new_segment

NOW = time.time_ns() // 1_000_000
ROLES = (SUPERVISOR, WRITER, DISPATCHER, COORDINATOR, SERVING)


@pytest.fixture
def segment() -> Segment:
    made = new_segment()
    for row in ROLES:
        made.begin_incarnation(row.slot)
        made.started(row.slot, os.getpid(), NOW - 60_000)
        made.set_state(row.slot, WORKER_RUNNING)
        made.beat(row.slot, NOW - 500)
    return made


def failed(checks: list[health.HealthCheck]) -> dict[str, str]:
    return {check.name: check.detail for check in checks if not check.ok}


def settings(**given: object) -> Settings:
    return load(None, {}, [f"{key.replace('__', '.')}={value}" for key, value in given.items()])


def test_processes_that_turn_are_well(segment: Segment) -> None:
    checks = health.alive(segment, NOW)
    assert {check.name for check in checks} == {
        "supervisor", "writer", "dispatcher", "coordinator", "pull-serving-0"}
    assert failed(checks) == {}
    assert failed(health.ready(segment, settings(), NOW)) == {}


@pytest.mark.parametrize("row", ROLES, ids=lambda row: row.name)
@pytest.mark.parametrize(("age_ms", "well"), [(10_000, True), (10_001, False), (-10_001, False)])
def test_a_process_that_has_not_turned_for_ten_seconds_is_not(
    segment: Segment, row: object, age_ms: int, well: bool
) -> None:
    """A clock that was put back does not hide one that hangs."""
    segment.beat(row.slot, NOW - age_ms)
    name = row.process_name(0)
    assert list(failed(health.alive(segment, NOW))) == ([] if well else [name])
    assert list(failed(health.ready(segment, settings(), NOW))) == ([] if well else ["processes"])


def test_a_start_that_takes_long_is_alive_and_not_ready(segment: Segment) -> None:
    segment.set_state(WRITER.slot, WORKER_STARTING)
    segment.beat(WRITER.slot, 0)
    assert failed(health.alive(segment, NOW)) == {}
    assert failed(health.ready(segment, settings(), NOW)) == {
        "processes": "writer: it does not run"}


def test_a_stop_in_order_is_alive_and_not_ready(segment: Segment) -> None:
    segment.set_state(SERVING.slot, WORKER_STOPPED)
    segment.beat(SERVING.slot, NOW - 60_000)
    assert failed(health.alive(segment, NOW)) == {}
    assert "processes" in failed(health.ready(segment, settings(), NOW))


def test_a_process_that_died_is_missed_when_it_does_not_come_again(segment: Segment) -> None:
    segment.set_state(WRITER.slot, WORKER_ABSENT)
    assert failed(health.alive(segment, NOW)) == {}
    segment.beat(WRITER.slot, NOW - 11_000)
    segment.started(WRITER.slot, os.getpid(), NOW - 12_000)
    segment.set_state(WRITER.slot, WORKER_ABSENT)
    assert failed(health.alive(segment, NOW)) == {
        "writer": "it ended 11 s ago, and was not started again"}


def test_a_broker_that_refuses_sends_is_not_ready(segment: Segment) -> None:
    segment.set_elsewhere(True)
    assert failed(health.ready(segment, settings(), NOW)) == {"sends": "refused: store moved"}
    slave = settings(replication__role="slave", broker__id=1,
                     replication__master_address="127.0.0.1:10912")
    assert failed(health.ready(segment, slave, NOW)) == {}


@pytest.mark.parametrize(("behind", "well"), [(67_108_863, True), (67_108_864, False)])
def test_a_dispatcher_far_behind_is_not_ready(
    segment: Segment, behind: int, well: bool
) -> None:
    segment.publish_for_test(segment.log_state()["dispatched"] + behind)
    assert list(failed(health.ready(segment, settings(), NOW))) == ([] if well else ["dispatcher"])


def test_a_broker_that_no_name_server_knows_is_not_ready(segment: Segment) -> None:
    known = settings(broker__namesrv_addrs="127.0.0.1:1;127.0.0.1:2")
    assert failed(health.ready(segment, known, NOW)) == {
        "name servers": "0 of 2 took the last registration"}
    FigureSlots(segment).put("registered_namesrvs", 1)
    assert failed(health.ready(segment, known, NOW)) == {}
