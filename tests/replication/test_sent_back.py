"""A message that a consumer sends back (36): its 0 means that a slave has it."""
from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mqcore.wire.records import Record, decode_records
from tests.replication.pairs import addresses, pair
from tests.replication.test_promotion import SYNC, TOPIC, has_acknowledged, same_log, send
from tests.support.command import mqcore
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields
from tests.workers.processes import pid_of

GROUP = "Back"
COUNT = 4


def make_group(address: str) -> None:
    with Peer(address) as peer:
        assert peer.ask(200, body=(
            b'{"groupName":"Back","consumeEnable":true,"consumeFromMinEnable":true,'
            b'"retryQueueNums":1,"retryMaxTimes":16,"brokerId":0,'
            b'"whichBrokerWhenConsumeSlowly":1}')).code == 0


def pulled(address: str, topic: str) -> list[Record]:
    found: list[Record] = []
    with Peer(address) as peer:
        while True:
            answer = peer.ask(11, pull_fields(topic, offset=len(found)))
            if answer.code != 0:
                return found
            found += decode_records(answer.body)


def send_back(address: str, position: int) -> int:
    with Peer(address) as peer:
        return peer.ask(36, {
            "offset": str(position), "group": GROUP, "delayLevel": "1", "originMsgId": "x",
            "originTopic": TOPIC, "unitMode": "false", "maxReconsumeTimes": "16"}).code


def retried(address: str) -> set[bytes]:
    return {record.body for record in pulled(address, f"%RETRY%{GROUP}")}


@pytest.mark.slow
def test_what_was_sent_back_and_answered_0_is_there_when_the_master_is_lost(
        tmp_path: Path) -> None:
    with pair(tmp_path, {**SYNC, "replication.slave_timeout_ms": 300}) as both:
        master, slave = both.master, both.slave
        make_group(master.broker_addr)
        wait_until(lambda: has_acknowledged(master.broker_addr, b"0"), "a slave that has it")
        bodies = [b"%d" % number for number in range(1, 2 * COUNT + 1)]
        assert send(master.broker_addr, *bodies) == [0] * len(bodies)
        wait_until(lambda: same_log(master, slave), "the same log")
        wait_until(lambda: pulled(master.broker_addr, TOPIC)[-1].body == bodies[-1], "all")
        there = [one.physical_offset for one in pulled(master.broker_addr, TOPIC)][-2 * COUNT:]
        assert [send_back(master.broker_addr, one) for one in there[:COUNT]] == [0] * COUNT
        kept = retried_soon(master.broker_addr)
        wait_until(lambda: same_log(master, slave), "the same log")

        stopped = pid_of(slave, "ha-slave")
        os.kill(stopped, signal.SIGSTOP)            # its link lives, and takes nothing
        try:
            assert [send_back(master.broker_addr, one) for one in there[COUNT:]] == [1] * COUNT
        finally:
            master.kill()
            os.kill(stopped, signal.SIGCONT)
        assert mqcore("replication", "promote", "--yes", slave.store).returncode == 0
        wait_until(lambda: addresses(both.names).get("0") == slave.broker_addr, "it leads")
        assert kept <= retried(slave.broker_addr)


def retried_soon(address: str) -> set[bytes]:
    wait_until(lambda: len(retried(address)) == COUNT, "the delay is over")
    return retried(address)
