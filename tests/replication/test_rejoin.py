"""A store that rejoins is cut by what its own files are, whatever the master says of itself."""
from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mqcore.admin.store import records
from mqcore.backup import tables
from mqcore.backup.cut import RestingLog, scan
from mqcore.backup.errors import BackupError
from mqcore.backup.tables import settle_again
from mqcore.replication import epochs
from mqcore.replication import rejoin as rejoins
from mqcore.replication.epochs import Epoch, History, Standing, State, Told
from mqcore.replication.greet import ANNOUNCE, GREETING_CHECKED_BYTES_MAX
from mqcore.replication.greeting import Greeting
from mqcore.replication.log_bytes import log_crc
from mqcore.replication.rejoin import RejoinError, rejoin, rejoin_at
from mqcore.replication.role import Role
from mqcore.store.log.folders import LogFolders
from mqcore.store.verify.report import DAMAGE
from mqcore.store.verify.scan import LogScan
from mqcore.store.verify.store import verify
from mqcore.wire.codes import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from mqcore.wire.properties import UNIQ_KEY
from mqcore.wire.records import Record
from mqcore.workers.scheduling.scheduler import DelayOffsets
from tests.backup.stores import offsets
from tests.schedule.desk import Desk, now_ms
from tests.schedule.test_stock import DEFAULT_DELAYS_MS, GOLDEN_SIZES, names
from tests.store import golden
from tests.support.stock import free_port

FIRST = Epoch(1, 0, "first", 1)


def near_the_end(found: list[Record]) -> Record:
    return next(one for one in found if one.physical_offset > found[-1].physical_offset - 4000)


class Overtaken:
    """A store that led, and what its new master says of a log that parted from it."""

    def __init__(self, folder: Path, name: str = "basic",
                 chosen: Callable[[list[Record]], Record] = near_the_end) -> None:
        """name: of the store that a stock broker wrote; chosen: the first record that parts."""
        self.root = golden.unpack(name, folder)
        log = LogFolders((self.root / "commitlog",))
        size = log.segments()[0][1].stat().st_size
        self.position = chosen(list(records(self.root))).physical_offset
        epochs.write(self.root, Standing(History("a" * 32, (FIRST,)), State.LEADS))
        start = max(self.position - GREETING_CHECKED_BYTES_MAX,
                    (self.position - 1) // size * size)
        self.greeting = Greeting(
            self.position, start, self.position, log_crc(log, start, self.position, size),
            "b", "c", size,
            History("a" * 32, (FIRST, Epoch(2, self.position, "second", 2))))

    def content(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes()
                for path in self.root.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.fixture
def overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Overtaken:
    made = Overtaken(tmp_path)
    monkeypatch.setattr(rejoins, "greeted", lambda *_: made.greeting)
    return made


def test_offsets_of_what_is_cut_are_not_brought_to_the_master(overtaken: Overtaken) -> None:
    config = overtaken.root / "config"
    for name in ("ownOffsets.json", "ownOffsets.json.bak"):
        (config / name).write_text('{"offsetTable":{"T@G":{0:300}}}')

    found = rejoin(overtaken.root, ("master", 1), 1)

    assert found.position == overtaken.position < found.end
    assert not list(config.glob("ownOffsets*"))
    report = verify(overtaken.root)
    assert report.figures["end"] == overtaken.position
    assert [one.line() for one in report.findings if one.severity == DAMAGE] == []


@pytest.mark.parametrize(("change", "word"), [
    ({"segment_bytes": 4096}, "segment_size_bytes is 4096"),
    ({"segment_bytes": 1}, "segment_size_bytes is 1"),
    ({"checked_from": -1, "crc32c": 0}, "shows no bytes"),
    ({"crc32c": 1}, "others than the master's"),
])
def test_a_master_that_shows_nothing_or_other_files_cuts_nothing(
    overtaken: Overtaken, change: dict[str, int], word: str,
) -> None:
    if change.get("checked_from") == -1:
        change = {**change, "checked_from": overtaken.position}
    overtaken.greeting = replace(overtaken.greeting, **change)         # type: ignore[arg-type]
    before = overtaken.content()

    with pytest.raises(RejoinError, match=word):
        rejoin(overtaken.root, ("master", 1), 1)

    assert overtaken.content() == before


def test_who_took_over_from_the_master_is_cut_only_by_force(overtaken: Overtaken) -> None:
    """The slave that was promoted, and whose former master leads again meanwhile."""
    theirs = overtaken.greeting.history
    epochs.write(overtaken.root, Standing(theirs, State.LEADS))
    overtaken.greeting = replace(overtaken.greeting, history=replace(theirs, epochs=(FIRST,)))
    before = overtaken.content()

    with pytest.raises(RejoinError, match="ends with epoch 2 of second, which took over from the "
                                          "log of that broker, whose last is epoch 1 of first"):
        rejoin(overtaken.root, ("master", 1), None)
    assert overtaken.content() == before

    found = rejoin(overtaken.root, ("master", 1), None, force=True)
    assert found.position == overtaken.position < found.end


def test_who_took_over_is_not_cut_by_a_former_master_that_lost_power_since(
    overtaken: Overtaken,
) -> None:
    """That one began an epoch behind its own, as its name in the table tells."""
    theirs = overtaken.greeting.history
    mine = Epoch(2, overtaken.position, "second", 2)
    epochs.write(overtaken.root, Standing(replace(theirs, epochs=(FIRST, mine)), State.LEADS))
    overtaken.greeting = replace(overtaken.greeting, history=replace(
        theirs, epochs=(FIRST, Epoch(9, overtaken.position, "first", 3))))
    before = overtaken.content()

    with pytest.raises(RejoinError, match="it is that one that was overtaken"):
        rejoin(overtaken.root, ("master", 1), None)
    assert overtaken.content() == before


def test_an_elected_leader_that_has_nothing_of_its_epoch_cuts_nothing(overtaken: Overtaken) -> None:
    """A leader began its epoch with all of its log: this one has lost some, or is none."""
    theirs = overtaken.greeting.history
    overtaken.greeting = replace(overtaken.greeting, history=replace(
        theirs, epochs=(FIRST, Epoch(2, overtaken.position + 1000, "second", 2))))
    before = overtaken.content()
    log = LogFolders((overtaken.root / "commitlog",))

    with pytest.raises(RejoinError, match="before the end here"):
        rejoin_at(overtaken.root, log, ("leader", 1), verify(overtaken.root).figures["end"], 2)
    assert overtaken.content() == before


@pytest.mark.parametrize("newer", [False, True], ids=["same epoch", "before its last epoch"])
def test_nothing_is_cut_by_a_slave_that_is_behind(overtaken: Overtaken, newer: bool) -> None:
    """It greets as the master does; its end is before all that the master acknowledged."""
    theirs = overtaken.greeting.history
    last = Epoch(2, overtaken.position + 1000, "second", 2)
    overtaken.greeting = replace(overtaken.greeting, history=replace(
        theirs, epochs=(FIRST, last) if newer else (FIRST,)))
    before = overtaken.content()

    with pytest.raises(RejoinError, match=f"ends at position {overtaken.position}, before the end "
                                          "here.*slave that is behind"):
        rejoin(overtaken.root, ("slave", 1), 1)
    assert overtaken.content() == before

    found = rejoin(overtaken.root, ("slave", 1), 1, force=True)
    assert found.position == overtaken.position < found.end


def test_who_was_promoted_by_mistake_rejoins_where_nothing_is_cut(overtaken: Overtaken) -> None:
    assert rejoin(overtaken.root, ("master", 1), None).end > overtaken.position
    theirs = overtaken.greeting.history
    epochs.write(overtaken.root, Standing(theirs, State.LEADS))
    overtaken.greeting = replace(overtaken.greeting, history=replace(theirs, epochs=(FIRST,)))

    found = rejoin(overtaken.root, ("master", 1), None)

    assert (found.position, found.end) == (overtaken.position, overtaken.position)


@pytest.mark.parametrize("standing", [
    Standing(History("a" * 32, (FIRST,)), State.FOLLOWS),
    Standing(History("a" * 32, (FIRST,)), State.FOLLOWS, Told(Role.SLAVE, 7)),
])
def test_a_slave_that_rejoins_keeps_its_id(overtaken: Overtaken, standing: Standing) -> None:
    epochs.write(overtaken.root, standing)

    rejoin(overtaken.root, ("master", 1), None)

    assert epochs.read(overtaken.root) == standing


@pytest.mark.parametrize("read_bytes", [1, 100])         # the end of a link, and a reset
def test_a_port_that_is_no_masters_is_named(read_bytes: int) -> None:
    free = free_port()
    with pytest.raises(ConnectionRefusedError, match=f"127.0.0.1:{free} cannot be reached"):
        rejoins.greeted(rejoins.MasterPort(("127.0.0.1", free)), 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()

        def hang_up() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(read_bytes)

        stranger = threading.Thread(target=hang_up)
        stranger.start()
        with pytest.raises(ConnectionResetError, match=f"127.0.0.1:{address[1]} has closed the "
                                                       "connection .* expected the HA port"):
            rejoins.greeted(rejoins.MasterPort(address), 0)
        stranger.join()


def test_a_master_that_speaks_in_crumbs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejoins, "GREETING_S", 0.3)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def speak() -> None:
            link, _ = listener.accept()
            with link, contextlib.suppress(OSError):
                link.sendall(rejoins.FRAME.pack(ANNOUNCE, 1 << 20))
                while not over.wait(0.02):
                    link.sendall(b"{")

        speaker = threading.Thread(target=speak)
        speaker.start()
        timer = threading.Timer(30, over.set)                # so that the test ends
        timer.start()
        with pytest.raises(TimeoutError):
            rejoins.greeted(rejoins.MasterPort(listener.getsockname()), 0)
        assert not over.is_set()
        over.set()
        timer.cancel()
        speaker.join()


# -- tables ----------------------------------------------------------------------------------------

def delivered(found: list[Record]) -> list[Record]:
    return [one for one in found if one.topic == one.properties.get("REAL_TOPIC")]


def rejoined(made: Overtaken) -> None:
    found = rejoin(made.root, ("master", 1), 1, before_cut=partial(settle_again, made.root))
    assert found.position == made.position < found.end


@pytest.mark.parametrize("late_ms", [tables.LATE_MS, -(1 << 50)], ids=["in time", "hours late"])
@pytest.mark.parametrize("times", [1, 2], ids=["once", "interrupted"])
def test_delayed_messages_whose_delivery_is_cut_are_delivered_again_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_ms: int, times: int,
) -> None:
    monkeypatch.setattr(tables, "LATE_MS", late_ms)
    made = Overtaken(tmp_path, "delay_retry_dlq",
                     lambda found: delivered(found)[len(delivered(found)) // 2])
    monkeypatch.setattr(rejoins, "greeted", lambda *_: made.greeting)
    config = made.root / "config"
    (config / "delayOffset.json.bak").write_bytes((config / "delayOffset.json").read_bytes())
    if times == 2:                   # what was done before the cut is done once more
        monkeypatch.setattr(rejoins, "_cut", lambda *_: None)
        rejoined(made)
        monkeypatch.undo()
        monkeypatch.setattr(rejoins, "greeted", lambda *_: made.greeting)

    rejoined(made)

    desk = Desk(made.root, delays_ms=DEFAULT_DELAYS_MS, load=False, **GOLDEN_SIZES)
    wanted = names(desk, delayed=True)
    assert Counter() < names(desk, delayed=False) < wanted
    desk.scheduler.load(*DelayOffsets(config / "delayOffset.json").load())
    desk.settle(now_ms())
    assert names(desk, delayed=False) == wanted
    assert not (config / "delayOffset.json.bak").exists()


def test_transactions_that_were_ended_in_what_is_cut_are_open_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    ops: list[Record] = []

    def chosen(found: list[Record]) -> Record:
        ops.extend(one for one in found if one.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC")
        return ops[len(ops) // 2]

    made = Overtaken(tmp_path, "transactions", chosen)
    monkeypatch.setattr(rejoins, "greeted", lambda *_: made.greeting)
    before = offsets(made.root)
    halves, ended = (f"RMQ_SYS_TRANS_{name}TOPIC@CID_RMQ_SYS_TRANS"
                     for name in ("HALF_", "OP_HALF_"))

    rejoined(made)

    after = offsets(made.root)
    assert after[halves]["0"] <= int(ops[len(ops) // 2].body) < before[halves]["0"]
    assert after[ended]["0"] <= len(ops) // 2 < before[ended]["0"]
    assert {key: value for key, value in after.items() if key not in (halves, ended)} == {
        key: value for key, value in before.items() if key not in (halves, ended)}


@pytest.mark.parametrize("number", [4, 6, 60, 90, 120, 133, 150, 170])
def test_transactions_are_open_again_by_what_is_cut_and_no_log_below_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int,
) -> None:
    """Settled, put back or given up behind the cut: their last copy before it is read again."""
    root = golden.unpack("transactions", tmp_path)
    found = list(records(root))
    kinds = (HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC)
    cut = [one for one in found if one.topic in kinds][number].physical_offset
    ended = [{int(one.body) for one in found if one.topic == OP_TOPIC
              and (one.physical_offset < cut) is is_before} for is_before in (True, False)]
    last = {one.properties[UNIQ_KEY]: one for one in found
            if one.topic == HALF_TOPIC and one.physical_offset < cut}
    behind = {one.properties[UNIQ_KEY] for one in found if one.physical_offset >= cut
              and one.topic in (HALF_TOPIC, GIVEN_UP_TOPIC)}
    wanted = min((one for key, one in last.items() if one.queue_offset not in ended[0]
                  and (one.queue_offset in ended[1] or key in behind)),
                 key=lambda one: one.queue_offset, default=None)
    ops = [one.queue_offset for one in found if one.topic == OP_TOPIC
           and wanted is not None and wanted.physical_offset < one.physical_offset < cut]
    ends = {topic: sum(one.topic == topic and one.physical_offset < cut for one in found)
            for topic in (HALF_TOPIC, OP_TOPIC)}
    first = ends[HALF_TOPIC] if wanted is None else wanted.queue_offset
    table = root / "config" / "consumerOffset.json"
    table.write_text(json.dumps({"offsetTable": {
        f"{topic}@CID_RMQ_SYS_TRANS": {"0": 1000} for topic in (HALF_TOPIC, OP_TOPIC)}}))
    log, read = LogFolders((root / "commitlog",)), []

    def counted(whole: RestingLog, *, start: int, stop: int, topic: bytes) -> LogScan:
        read.append((start, stop))
        return scan(whole, start=start, stop=stop, topic=topic)

    monkeypatch.setattr(tables, "scan", counted)

    settle_again(root, log, log.segments()[0][1].stat().st_size, found[-1].physical_offset + 1, cut)

    after = offsets(root)
    assert after[f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS"]["0"] == first
    assert after[f"{OP_TOPIC}@CID_RMQ_SYS_TRANS"]["0"] == min(ops, default=ends[OP_TOPIC])
    below = [(start, stop) for start, stop in read if start < cut]
    assert all(stop == start + 1 for start, stop in below)               # one record
    assert len(below) <= ends[HALF_TOPIC] - first + 1


def test_a_table_that_cannot_be_read_is_said_before_anything_is_cut(overtaken: Overtaken) -> None:
    (overtaken.root / "config" / "delayOffset.json").write_text("{")
    (overtaken.root / "config" / "delayOffset.json.bak").unlink(missing_ok=True)

    log = LogFolders((overtaken.root / "commitlog",), store=overtaken.root)
    end = verify(overtaken.root).figures["end"]

    with pytest.raises(BackupError, match=r"delayOffset\.json"):
        rejoin_at(overtaken.root, log, ("master", 1), end, 0,
                  partial(settle_again, overtaken.root))

    standing = epochs.read(overtaken.root)
    assert standing is not None
    assert standing.state is State.LEADS
    assert verify(overtaken.root).figures["end"] == end > overtaken.position
