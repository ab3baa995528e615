"""What the coordinator builds for many at a time has a sum, and honest requests go on meanwhile."""
from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode as Code
from tests.attacks import coordinator_hogs as hogs
from tests.attacks.answer_hoard import ask_all
from tests.attacks.honest import Honest
from tests.attacks.test_coordinator_hogs import assert_prompt
from tests.attacks.test_looks_of_those_who_left import worked_ns
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.support.stretch import Stretch
from tests.wire_live.peer import Peer, topic_fields
from tests.workers.processes import pid_of

REST = 3.0                      # large answers take long
CONNECTIONS = 10                # of some 60 MiB each
ENOUGH = 1                      # of them that are answered: all have begun long before
MOST_MIB = 400                  # the sum, and an answer beside it


def most_mib(pid: int) -> float:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def large_answer_ns(peer: Peer, pid: int) -> int:
    """What the process works until a large answer is there, for others as well."""
    began_ns = worked_ns(pid)
    peer.ask(Code.QUERY_CONSUME_TIME_SPAN, dict(hogs.FIELDS))
    return worked_ns(pid) - began_ns


@pytest.fixture(scope="module", autouse=True)
def tables(target: MqcoreProcess) -> None:
    hogs.make_tables(target.broker_addr)


@pytest.mark.slow
def test_answers_to_many_at_a_time_take_no_more_memory_than_the_sum(
    target: MqcoreProcess, honest: Honest, watch: Watch
) -> None:
    pid = pid_of(target, "coordinator")
    before, calm = most_mib(pid), honest.measure()
    waited: list[float] = []

    def look() -> bool:
        """Somebody asks something small, again and again."""
        began = time.monotonic()
        assert looker.ask(Code.GET_MAX_OFFSET, {"topic": "small", "queueId": "0"}).code == 0
        waited.append(time.monotonic() - began)
        return False

    with Peer(target.broker_addr) as looker:
        answer = looker.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("small", 1))
        assert answer.code == 0, answer.remark
        own = Stretch.of([pid, os.getpid()])
        with honest.span() as span:
            assert ask_all(target.broker_addr, CONNECTIONS, look, enough=ENOUGH) == ENOUGH
        stretch = own.value()
        own_ns, one_ns = large_answer_ns(looker, pid), large_answer_ns(looker, pid)
        assert own_ns <= 3 * one_ns            # nothing is built for those who went
    assert_prompt(span, calm)
    most = most_mib(pid)
    look_s_max = one_ns / 1e9 * stretch        # a small answer waits for no more than a large one
    print(f"{before:.0f} MiB, then {most:.0f}; looks at most {max(waited):.1f} s of "
          f"{look_s_max:.1f}, stretch {stretch:.1f}; {span.line()}")
    assert most - before <= MOST_MIB, f"{before:.0f} MiB, then {most:.0f}"
    assert max(waited) <= look_s_max
