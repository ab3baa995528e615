"""
Brokers that elect who leads, and a test that says who: it writes the words of the election itself,
in place of the process that asks etcd, which sleeps meanwhile.
"""
from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import posix_ipc

from mqcore.layout import LEADERSHIP_FOLLOWS, LEADERSHIP_LEADS, WORKER_RUNNING
from mqcore.participants import FAILOVER
from mqcore.replication.identity import identity
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.members import member_number
from mqcore.shm.segment import LayoutError, Segment
from tests.replication.pairs import NAME
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields
from tests.workers.processes import by_role, pid_of
from tests.workers.test_end import segment_of

TOPIC = "BenchmarkTest"
LEASE_NS = 600 * 10**9
NUMBERS = {"one": 1, "two": 2}       # by folder
NOBODY = "http://127.0.0.1:1"        # no etcd


@dataclass
class Member:
    """A broker of the set; number: its broker.id."""

    broker: MqcoreProcess
    number: int

    @property
    def address(self) -> str:
        return self.broker.broker_addr

    @property
    def ha(self) -> str:
        host, _, port = self.address.rpartition(":")
        return f"{host}:{int(port) + 1}"

    def segment(self) -> Segment:
        """Of the present run."""
        return segment_of(self.broker)

    @property
    def pen(self) -> LeadershipPen:
        """To be read with; for who writes: `say`."""
        return LeadershipPen(self.segment())

    def say(self, *words: Callable[[LeadershipPen], None]) -> None:
        """Write words as the election does, and wake the supervisor. Its bells are not ours."""
        pen = self.pen
        child = os.fork()
        if child == 0:
            os.closerange(3, 4096)
            for word in words:
                word(pen)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        os.kill(self.broker.pid, signal.SIGCHLD)

    def sleep_election(self) -> None:
        """The process that asks etcd says nothing from now on."""
        wait_until(lambda: "failover" in by_role(self.broker), "the process of the election")
        os.kill(pid_of(self.broker, "failover"), signal.SIGSTOP)

    def wake_election(self) -> None:
        with contextlib.suppress(KeyError, ProcessLookupError):
            os.kill(by_role(self.broker)["failover"], signal.SIGCONT)

    def elect(self, epoch: int) -> None:
        """It is to lead in `epoch`."""
        others = [member_number(number, identity(store)) for name, number in NUMBERS.items()
                  if number != self.number
                  and (store := self.broker.store.parent.parent / name / "store").is_dir()]
        self.say(lambda pen: pen.wait_for(others),
                 lambda pen: pen.hold_until(time.clock_gettime_ns(time.CLOCK_BOOTTIME) + LEASE_NS),
                 lambda pen: pen.request(LEADERSHIP_LEADS, epoch))

    def lead(self, epoch: int) -> float:
        """Elect it; seconds from there to the first send that it answered as stored."""
        began = time.perf_counter()
        self.elect(epoch)
        wait_until(lambda: send(self.address, b"first of %d" % epoch) != [14], "it leads")
        return time.perf_counter() - began

    def hear_of(self, leader: Member, epoch: int) -> None:
        """Somebody else was elected."""
        self.say(lambda pen: pen.say_leader(
            leader.number, leader.address, leader.ha, epoch, [self.number, leader.number]))

    def lose(self) -> None:
        """It leads no longer; the run ends, and the next one is there when this returns."""
        before = self.segment().run_id
        self.say(lambda pen: pen.hold_until(0), lambda pen: pen.request(LEADERSHIP_FOLLOWS, 0))
        self.wake_election()
        wait_until(lambda: self.is_new_run(before), "the next run")
        self.sleep_election()

    def follow(self, leader: Member, epoch: int) -> None:
        """It follows who was elected; what its log has more is cut first, by a run of its own."""
        before = self.segment().run_id
        self.hear_of(leader, epoch)
        self.wake_election()
        wait_until(lambda: self.is_new_run(before), "the run after the cut")
        self.sleep_election()
        self.hear_of(leader, epoch)

    def is_new_run(self, before: int) -> bool:
        """Whether a run other than `before` is up, and its failover, which a test stops next."""
        try:
            segment = self.segment()
            return (segment.run_id != before and segment.state(FAILOVER.slot) == WORKER_RUNNING
                    and send(self.address, b"?") == [14])
        except (ValueError, OSError, LayoutError, posix_ipc.Error):      # between two runs
            return False


def send(address: str, *bodies: bytes, properties: str = "") -> list[int]:
    """The codes of the answers."""
    with Peer(address) as peer:
        return [peer.ask(310, send_fields(TOPIC, properties=properties), body).code
                for body in bodies]


def settings_of(number: int) -> dict[str, object]:
    """Of a member that shows what it has, also while no other one is there."""
    return {
        "broker.name": NAME, "broker.id": number, "failover.enable": True,
        "failover.etcd": [NOBODY], "replication.role": "sync-master", "replication.listen": True,
        "replication.read_replicated_only": False, "replication.slave_timeout_ms": 300,
        "store.segment_size_bytes": 1 << 20, "store.message_size_max_bytes": 65_536}


@contextlib.contextmanager
def member_up(folder: Path, number: int, namesrv_addr: str,
              settings: Mapping[str, object] | None = None) -> Iterator[Member]:
    """One that follows nobody yet."""
    with mqcore_up(folder, {**settings_of(number), **(settings or {})},
                   namesrv_addr=namesrv_addr) as broker:
        one = Member(broker, number)
        one.sleep_election()
        try:
            yield one
        finally:
            one.wake_election()


@contextlib.contextmanager
def two(folder: Path, settings: Mapping[str, object] | None = None,
        ) -> Iterator[tuple[MqcoreProcess, Member, Member]]:
    """A name server and two members; the first one leads in epoch 1."""
    with (
        mqcore_namesrv(folder / "names") as names,
        member_up(folder / "one", 1, names.namesrv_addr, settings) as one,
        member_up(folder / "two", 2, names.namesrv_addr, settings) as other,
    ):
        one.lead(1)
        other.hear_of(one, 1)
        wait_until(lambda: send(one.address, b"both") == [0], "the other one has it, too")
        yield names, one, other
