"""
Who was just elected does not show at once all that its log has (FO10). Until then, and until its
queues have it, nobody is moved back, nothing is delivered again, and topics are not forgotten.

The words of the election are written by the tests (elected.py): there is no etcd.
"""
from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from mqcore.replication.identity import identity
from mqcore.shm.members import member_number
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.wire.command import Command
from tests.replication.elected import TOPIC, Member, member_up, send, two
from tests.replication.stores import log_of
from tests.replication.test_elected import ask, bodies, later
from tests.support.waiting import wait_until
from tests.transactions.producer import COMMIT, HALF_TOPIC, Producer
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields
from tests.workers.processes import kill, pid_of

AUTO = {"replication.read_replicated_only": "auto"}
NOBODY = 9                        # a member that never comes
RETRY = 20


def show(member: Member, position: int) -> None:
    """The election's word: whoever is elected next has the log up to there."""
    segment = member.segment()
    member.say(lambda _: ReplicaPen(segment).show_below(position))


def tell_no_more(leader: Member, other: Member) -> None:
    """Nobody is told of what comes: somebody is waited for who never has it."""
    waited = [member_number(other.number, identity(other.broker.store)), NOBODY]
    leader.say(lambda pen: pen.wait_for(waited))
    wait_until(lambda: leader.pen.applied, "ha-master waits for them")


def end_of(member: Member) -> int:
    return int(member.segment().log_state()["published"])


def pulled(member: Member, offset: int, group: str) -> Command:
    with Peer(member.address) as peer:
        return peer.ask(11, pull_fields(TOPIC, group=group, offset=offset))


def test_nobody_is_moved_and_no_topic_is_forgotten_before_all_is_shown(tmp_path: Path) -> None:
    with two(tmp_path, AUTO) as (_, one, other):
        assert send(one.address, *(b"told %d" % number for number in range(3))) == [0] * 3
        wait_until(lambda: b"told 2" in bodies(other.address), "what both have")
        asleep = pid_of(other.broker, "coordinator")
        os.kill(asleep, signal.SIGSTOP)                  # it does not hear of the topic
        tell_no_more(one, other)
        assert ask(one.address, 17, topic_fields("New", 1)).code == 0
        assert set(send(one.address, *(b"untold %d" % number for number in range(5)))) <= {11, 12}
        with Peer(one.address) as peer:
            assert peer.ask(310, send_fields("New"), b"new").code in {11, 12}
        wait_until(lambda: end_of(other) == end_of(one), "all is there")
        one.broker.kill()
        os.kill(asleep, signal.SIGCONT)
        other.lead(2)
        asked = len(bodies(other.address)) + 3

        def is_kept(group: str) -> bool:
            answer = pulled(other, asked, group)
            return (answer.code, (answer.ext or {})["nextBeginOffset"]) == (RETRY, str(asked))

        assert is_kept("Unknown")                        # the coordinator looks at it
        assert is_kept("Unknown")                        # and no more
        kill(other.broker, "coordinator")
        wait_until(lambda: ask(other.address, 28, {}).code == 0, "the next coordinator")
        asleep = pid_of(other.broker, "dispatcher")
        os.kill(asleep, signal.SIGSTOP)
        show(other, other.pen.begun)
        assert is_kept("Unknown")                        # it may be shown, and has no entries
        assert is_kept("Another")
        os.kill(asleep, signal.SIGCONT)
        wait_until(lambda: pulled(other, asked, "Unknown").code == 0, "the end of its log")
        wait_until(lambda: bodies(other.address, "New") == [b"new"], "the topic is made again")


def test_what_was_delivered_or_ended_is_not_so_again_when_queues_are_late(tmp_path: Path) -> None:
    """The next leader has lost its queues, and shows nothing of its log at first."""
    settings = {**AUTO, "broker.message_delay_levels": "1s 4s",
                "broker.transaction_timeout_ms": 100, "broker.transaction_check_interval_ms": 100,
                "replication.metadata_interval_ms": 100}
    with two(tmp_path, settings) as (names, one, other):
        assert ask(one.address, 17, topic_fields("Later", 1)).code == 0
        with Producer(one.address, "group") as producer:
            half = producer.prepare("Later", b"decided")
            assert producer.end(half, COMMIT).code == 0
        assert later(one.address, 1, b"early") == [0]
        wait_until(lambda: set(bodies(one.address, "Later")) == {b"decided", b"early"}, "both")
        wait_until(lambda: end_of(other) == end_of(one), "all is there")
        other.wake_election()
        other.broker.stop()
        one.broker.kill()
        shutil.rmtree(other.broker.store / "consumequeue")
        with member_up(tmp_path / "two", 2, names.namesrv_addr, settings) as again:
            again.lead(2)
            pid_of(again.broker, "scheduler")
            with Producer(again.address, "group") as producer:
                show(again, half.physical_offset + half.size)
                wait_until(lambda: bodies(again.address, HALF_TOPIC) == [b"decided"],
                           "it is shown before its end")
                producer.ask(11, pull_fields(TOPIC, sys_flag=6, suspend_ms=700, offset=99))
                show(again, again.pen.begun)
                wait_until(lambda: b"early" in bodies(again.address, "Later"), "all is shown")
                assert set(later(again.address, 1, b"last")) <= {11, 12}
                show(again, end_of(again))
                wait_until(lambda: log_of(again.broker.store).count(b"last") == 2, "the next one")
                producer.view(half.physical_offset)
                assert producer.asked == []
            log = log_of(again.broker.store)
            assert log.count(b"early") == 2              # as it came, and as it was delivered
            assert log.count(b"decided") == 2
