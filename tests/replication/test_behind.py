"""How far a slave is behind, as a master, its slave and an operator see it."""
from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from mqcore.admin.status import describe, of_role
from mqcore.replication.behind import Behind, Courtesy, Pace
from mqcore.replication.greet import ANNOUNCE
from mqcore.replication.side_files import overtaken_messages
from mqcore.store import files
from mqcore.store.log.folders import LogFolders
from mqcore.thread_times import processor_ns
from mqcore.workers.replication import ha_master
from mqcore.workers.replication.ha_master import HaMaster
from tests.replication.ends import SEGMENT_SIZE, MasterEnd
from tests.replication.ends import Peer as Slave
from tests.replication.pairs import pair
from tests.replication.test_promotion import same_log
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until
from tests.verify.stores import load
from tests.wire_live.peer import Peer
from tests.workers.processes import pid_of
from tests.workers.test_end import segment_of


def messages_between(log: LogFolders, start: int, end: int) -> int:
    """Asked until it knows all."""
    behind = Behind(log, SEGMENT_SIZE)
    return max(behind.messages(start, end) for _ in range(10))


def test_messages_between_two_positions_are_counted_by_checksums(tmp_path: Path) -> None:
    master = MasterEnd(tmp_path / "master")
    master.send(200)
    log = LogFolders((master.run.log_folder,))
    begins = [record["physicalOffset"] for record in master.run.records(master.end)
              if "blank" not in record]
    assert master.end > 3 * SEGMENT_SIZE

    for first, last in ((0, 199), (0, 1), (17, 170), (100, 100), (120, 121)):
        assert messages_between(log, begins[first], begins[last]) == last - first
    assert messages_between(log, 0, master.end) == 200
    assert messages_between(log, master.end, master.end) == 0
    (master.run.root / "checksums" / f"{SEGMENT_SIZE:020d}").unlink()
    assert messages_between(log, SEGMENT_SIZE, 2 * SEGMENT_SIZE) == 0
    master.close()


def test_a_call_reads_few_files_and_none_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = MasterEnd(tmp_path / "master")
    master.send(600)
    behind = Behind(LogFolders((master.run.log_folder,)), SEGMENT_SIZE)
    segments = master.end // SEGMENT_SIZE + 1
    assert segments > 2 * Behind.FILES_A_CALL
    opened: list[Path] = []
    taken = files.opened

    def counted(path: Path, flags: int) -> AbstractContextManager[int]:
        opened.append(path)
        return taken(path, flags)

    monkeypatch.setattr(files, "opened", counted)
    counts = []
    for _ in range(segments):
        before = len(opened)
        counts.append(behind.messages(0, master.end))
        assert len(opened) - before <= Behind.FILES_A_CALL
    assert counts == sorted(counts)
    assert 0 < counts[0] < counts[-1] == 600
    assert len(opened) - before == 1                  # that of the end
    master.close()


def test_checksums_that_cannot_be_read_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:
    master = MasterEnd(tmp_path / "master")
    master.send(20)
    behind = Behind(LogFolders((master.run.log_folder,)), SEGMENT_SIZE)

    def full(path: Path, flags: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(files, "opened", full)
        assert [behind.messages(0, master.end) for _ in range(3)] == [0, 0, 0]
    assert caplog.text.count("Too many open files") == 1
    assert behind.messages(0, master.end) == 20
    master.close()


def test_a_rate_is_that_of_the_last_seconds() -> None:
    pace = Pace(100, 10.0)
    assert pace.a_second(5_000, 14.9) == 0
    assert pace.a_second(10_100, 15.0) == 2_000
    assert pace.a_second(99_999, 19.0) == 2_000
    assert pace.a_second(0, 20.0) == 0                # who counts began anew


def test_messages_that_rejoining_cut_are_summed(tmp_path: Path) -> None:
    assert overtaken_messages(tmp_path) == 0
    (tmp_path / "overtaken").mkdir()
    for name, text in (("a.json", '{"messages": 7}'), ("b.json", '{"messages": 5, "end": 1}'),
                       ("c.json", "{"), ("d.json", "[1]"), ("e.log", '{"messages": 9}')):
        (tmp_path / "overtaken" / name).write_text(text)
    assert overtaken_messages(tmp_path) == 12


def of_status(broker: MqcoreProcess) -> dict[str, object]:
    found = describe(segment_of(broker).name)
    assert found is not None
    return of_role(found["replication"])               # type: ignore[arg-type]


def runtime(broker: MqcoreProcess) -> dict[str, str]:
    with Peer(broker.broker_addr) as peer:
        table: dict[str, str] = json.loads(peer.ask(28).body)["table"]
        return table


@pytest.mark.slow
def test_a_slave_that_lags_is_told_of_in_figures_and_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "slave" / "store" / "overtaken").mkdir(parents=True)
    (tmp_path / "slave" / "store" / "overtaken" / "x.json").write_text('{"messages": 3}')
    with pair(tmp_path) as both:
        load(both.master, 10)
        wait_until(lambda: same_log(both.master, both.slave), "all of it")
        wait_until(lambda: of_status(both.master)["slave_lag_bytes"] == 0, "word of it")
        pid = pid_of(both.slave, "ha-slave")
        os.kill(pid, signal.SIGSTOP)
        load(both.master, 500)
        wait_until(lambda: of_status(both.master)["slave_lag_messages"] == 500, "the messages")
        line = r"the last of 1 slaves is \d+ bytes behind, 500 messages, \d+ ms; \d+\.\d MB/s go"
        wait_until(lambda: re.search(line, both.master.output.read_text()), "the line")
        assert runtime(both.master)["replicationLagMessages"] == "500"
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: of_status(both.master)["slave_lag_messages"] == 0, "none")
        wait_until(lambda: of_status(both.master)["sent_bytes_per_s"] != 0, "a rate")
        wait_until(lambda: of_status(both.slave)["received_bytes_per_s"] != 0, "a rate there")

        told, heard = runtime(both.master), runtime(both.slave)
        assert (told["replicationRole"], told["replicationEpoch"]) == ("master", "1")
        assert (heard["replicationRole"], heard["replicationFollowedEpoch"]) == ("slave", "1")
        assert (told["replicationOvertakenMessages"], heard["replicationOvertakenMessages"]) == (
            "0", "3")
        assert of_status(both.master)["epoch"] == of_status(both.slave)["followed_epoch"] == 1
        assert of_status(both.slave)["overtaken_messages"] == 3


# -- who catches up stands behind who sends --------------------------------------------------------

SECOND = 1_000_000_000


@pytest.mark.parametrize(("comes", "ran", "waited", "rate"), [
    (0, SECOND, SECOND, 0),                      # nobody sends
    (500_000, SECOND, SECOND, 0),                # hardly anybody
    (300 << 20, SECOND, 0, 0),                   # processors are free
    (300 << 20, SECOND // 2, SECOND // 20, 0),
    (300 << 20, SECOND // 2, SECOND // 2, 375 << 20),
    (2 << 20, SECOND // 2, SECOND // 2, Courtesy.LEAST_A_SECOND),
    (300 << 20, 0, 0, 0)])                       # the kernel does not say it
def test_who_catches_up_gives_way_while_messages_come_and_processors_are_short(
    comes: int, ran: int, waited: int, rate: int,
) -> None:
    courtesy = Courtesy(1000, 10.0, (7, 9))
    assert courtesy.a_second(1000 + comes, 11.0, (7 + ran, 9 + waited)) == rate
    assert courtesy.a_second(1000 + comes, 12.0, (7 + ran, 9 + waited)) == 0     # since then


class Sending:
    """What HaMaster looks at; the log grows by 300 MiB a look, and nobody has a processor."""

    def __init__(self) -> None:
        self.behind, self.end, self.waited_ns, self.now_s = 0, 0, 0, 0.0
        self.rates: list[int] = []

    def total(self, _name: str) -> int:
        return self.behind

    def log_state(self) -> dict[str, int]:
        self.end += 300 << 20
        return {"published": self.end}

    def slow_down(self, rate: int) -> None:
        self.rates.append(rate)

    def monotonic(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def processor_ns(self) -> tuple[int, int]:
        self.waited_ns += SECOND
        return 0, self.waited_ns


def test_a_master_slows_those_down_that_are_far_behind_and_then_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sending = Sending()
    worker: Any = HaMaster.__new__(HaMaster)
    worker._slots = worker._segment = worker._loop = sending
    worker._courtesy = None
    monkeypatch.setattr(ha_master, "time", sending)
    monkeypatch.setattr(ha_master, "processor_ns", sending.processor_ns)
    for behind in (0, 1 << 30, 1 << 30, 1 << 30, 0, 0):
        sending.behind = behind
        worker._give_way()
    assert sending.rates == [375 << 20, 375 << 20, 0]


def test_a_process_that_works_has_run() -> None:
    before = processor_ns()
    wait_until(lambda: processor_ns()[0] > before[0], "the processor time of this process")


def test_what_is_not_of_the_moment_goes_out_at_a_rate_that_was_said(tmp_path: Path) -> None:
    """CK6: segments of a log of before are judged one after the other, a pause behind each."""
    master = MasterEnd(tmp_path / "master")
    master.send(300)
    master.run.segment.set_begun(master.end)
    segments = master.end // SEGMENT_SIZE
    assert segments > 4
    slow = 20 * SEGMENT_SIZE                     # bytes a second

    def follow_s() -> float:
        with contextlib.closing(Slave.of(master.address)) as slave:
            slave.report(ANNOUNCE, 0)
            began = time.monotonic()
            slave.bytes_up_to(master.end)
            return time.monotonic() - began

    with master.turning():
        master.loop.slow_down(slow)
        assert follow_s() >= (segments - 1) * SEGMENT_SIZE / slow
        master.loop.slow_down(0)
        follow_s()
    master.close()
