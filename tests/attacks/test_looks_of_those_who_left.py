"""Who asks and goes, again and again, leaves no work behind for those who stay."""
from __future__ import annotations

import os
import signal

from mqcore.broker.tables.table_waits import WAIT_MS_MAX, WAITS_MAX
from mqcore.thread_times import threads_ns
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from mqcore.wire.topics import DataVersion
from tests.attacks.honest import Honest
from tests.attacks.leavers import ask_and_go
from tests.attacks.medians import hardly_slower
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.workers.processes import by_role, pid_of

ASKERS = 300


def worked_ns(pid: int) -> int:
    return threads_ns(pid)[str(pid)][0]


def test_what_somebody_asked_who_left_is_not_looked_up(target: MqcoreProcess) -> None:
    """The CPU of the coordinator that they cost, and that of as many who stay."""
    pid, costs = pid_of(target, "coordinator"), []
    for stays in (True, False):
        before_them = descriptors(target)
        peers = [Peer(target.broker_addr) for _ in range(ASKERS)]
        looks = [request(RequestCode.GET_BROKER_RUNTIME_INFO) for _ in peers]
        with Peer(target.broker_addr) as last:
            assert last.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
            os.kill(pid, signal.SIGSTOP)
            try:
                before = worked_ns(pid)
                for peer, look in zip(peers, looks, strict=True):
                    peer.send(encode(look))
                    if not stays:
                        peer.close()
                if not stays:
                    # `last` is one of those that are there
                    wait_until(lambda held=before_them: descriptors(target) <= held + 1,
                               "the broker knows that they left")
            finally:
                os.kill(pid, signal.SIGCONT)
            if stays:
                for peer, look in zip(peers, looks, strict=True):
                    assert peer.answer_to(look.opaque, 60).code == 0
            assert last.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
            costs.append(worked_ns(pid) - before)
        for peer in peers:
            peer.close()
    stayed, left = costs
    print(f"{left / 1e6:.1f} and {stayed / 1e6:.1f} ms")
    assert left < stayed / 2, f"{left / 1e6:.1f} and {stayed / 1e6:.1f} ms"


def test_who_left_keeps_no_place_of_slaves_that_wait(target: MqcoreProcess) -> None:
    """Their requests and the ends of their connections are there at once."""
    pid = pid_of(target, "coordinator")
    with Peer(target.broker_addr) as slave:
        topics, groups = (
            DataVersion.from_json(fastjson.loads(slave.ask(code).body)["dataVersion"]).text
            for code in (RequestCode.GET_ALL_TOPIC_CONFIG,
                         RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        hears = {"topicsKnown": topics, "groupsKnown": groups, "waitMillis": str(WAIT_MS_MAX)}
        before = descriptors(target)
        leavers = [Peer(target.broker_addr) for _ in range(WAITS_MAX)]
        wait_until(lambda: descriptors(target) >= before + WAITS_MAX, "they are there")
        os.kill(pid, signal.SIGSTOP)
        try:
            for leaver in leavers:
                leaver.send(encode(request(RequestCode.HEAR_OF_TABLES, {**hears})))
                leaver.close()
            wait_until(lambda: descriptors(target) <= before, "the broker knows that they left")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert slave.ask(RequestCode.HEAR_OF_TABLES, {
            **hears, "topicsKnown": "older"}).ext == {"tablesChanged": "true"}


def test_who_stays_is_served_beside_crowds_that_ask_and_go(
    target: MqcoreProcess, honest: Honest, watch: Watch
) -> None:
    with hardly_slower(honest):
        for _ in range(20):
            ask_and_go(target.broker_addr)


def descriptors(target: MqcoreProcess) -> int:
    """Of serving processes: theirs are connections, above all."""
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for role, pid in by_role(target).items()
               if "serving" in role)
