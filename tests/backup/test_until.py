"""A restore up to a time or a position holds what an oracle says, and no offset is beyond it."""
from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path

import pytest

from mqcore.admin.store import records
from mqcore.backup import tables
from mqcore.backup.errors import BackupError
from mqcore.backup.make import to_folder
from mqcore.backup.restore import Restored, Until, restore
from mqcore.store.log import owner
from mqcore.store.verify.report import STATUS_MEND
from mqcore.store.verify.store import verify
from mqcore.wire.records import Record
from mqcore.workers.scheduling.scheduler import DelayOffsets
from tests.backup.stores import assert_prefix, assert_sound, assert_starts, copied, offsets
from tests.schedule.desk import Desk, now_ms
from tests.schedule.test_stock import DEFAULT_DELAYS_MS, GOLDEN_SIZES, names
from tests.store import golden
from tests.support.dice import seed_of_run
from tests.verify.stores import SEGMENT_BYTES

SEED = seed_of_run()


def ends(found: list[Record]) -> list[int]:
    """Where each record ends, by its own account."""
    return [record.physical_offset + record.size for record in found]


def boundaries(found: list[Record]) -> set[int]:
    """Where a record ends or one begins: behind the last of a segment a blank one lies between."""
    return {*ends(found), *(record.physical_offset for record in found[1:])}


def restored_to(backups: Path, target: Path, until: Until) -> tuple[Restored, list[Record]]:
    done = restore(backups, target, until)
    return done, list(records(target))


def test_a_position_anywhere_cuts_at_the_last_record_that_ends_before_it(
    tmp_path: Path, store: Path, backups: Path,
) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    everything = list(records(store))
    drawn = [draw.randrange(ends(everything)[0], ends(everything)[-1] + 9) for _ in range(5)]
    exact = draw.choice(everything)
    second = next(record for record in everything if record.physical_offset == SEGMENT_BYTES)
    for number, position in enumerate([
            *drawn, exact.physical_offset + exact.size, exact.physical_offset + exact.size - 1,
            SEGMENT_BYTES - 1, SEGMENT_BYTES, SEGMENT_BYTES + second.size - 1]):
        target = tmp_path / f"restored-{number}"
        expected = max(place for place in boundaries(everything) if place <= position)

        done, found = restored_to(backups, target, Until(position=position))

        assert done.end == expected, (SEED, position)
        assert found == [one for one in everything if one.physical_offset < expected]
        assert_prefix(store, target, 0, expected)
        assert done.report.status in (0, STATUS_MEND)


def test_a_time_keeps_every_record_up_to_the_first_that_was_stored_later(
    tmp_path: Path, store: Path, backups: Path,
) -> None:
    print(f"seed {SEED}")
    everything = list(records(store))
    times = sorted({record.store_timestamp_ms for record in everything})
    for number, time_ms in enumerate([times[0], random.Random(SEED).choice(times), times[-1] + 5]):
        expected = next((at for at, record in enumerate(everything)
                         if record.store_timestamp_ms > time_ms), len(everything))

        _, found = restored_to(backups, tmp_path / f"restored-{number}", Until(time_ms=time_ms))

        assert found == everything[:expected], (SEED, time_ms)

    with pytest.raises(BackupError, match="all records were stored after that time"):
        restore(backups, tmp_path / "nothing", Until(time_ms=times[0] - 1))
    with pytest.raises(BackupError, match="no record ends at or before log position 5"):
        restore(backups, tmp_path / "nothing", Until(position=5))
    assert not (tmp_path / "nothing").exists()


def test_a_broker_starts_on_what_was_cut_and_finds_the_offsets_of_groups_at_its_end(
    tmp_path: Path, store: Path,
) -> None:
    """The groups had read everything; a journal says more than the file that it goes on from."""
    source = tmp_path / "source"
    copied(store, source)
    everything = list(records(source))
    topic = everything[0].topic
    text = f'{{"offsetTable":{{"{topic}@all":{{0:375,1:375,2:1,3:375}},"gone@all":{{0:7}}}}}}'
    (source / "config" / "consumerOffset.json").write_text(text)
    (source / "config" / "consumerOffset.json.bak").write_text(text)
    to_folder(source, tmp_path / "backups")
    cut = everything[600]

    done = restore(tmp_path / "backups", tmp_path / "restored",
                   Until(position=cut.physical_offset))

    kept = [sum(one.queue_id == queue for one in everything[:600]) for queue in range(4)]
    assert offsets(tmp_path / "restored") == {
        f"{topic}@all": {"0": kept[0], "1": kept[1], "2": 1, "3": kept[3]}, "gone@all": {"0": 0}}
    assert done.offsets_cut == 4
    assert not (tmp_path / "restored" / "config" / "consumerOffset.json.bak").exists()
    again = assert_starts(tmp_path / "restored", tmp_path / "again")
    assert list(records(again))[:600] == everything[:600]


@pytest.mark.parametrize("late_ms", [tables.LATE_MS, -(1 << 50)], ids=["in time", "hours late"])
def test_every_delayed_message_before_a_cut_is_delivered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_ms: int,
) -> None:
    """
    Those whose delivery lay behind the cut are due again, the others are found in the log; also
    of a broker that was away for long, where no time says which entries it delivered.
    """
    monkeypatch.setattr(tables, "LATE_MS", late_ms)
    root = golden.unpack("delay_retry_dlq", tmp_path)
    to_folder(root, tmp_path / "backups")
    delivered = [one for one in records(root) if one.topic == one.properties.get("REAL_TOPIC")]
    cut = delivered[len(delivered) // 2].physical_offset

    restore(tmp_path / "backups", tmp_path / "restored", Until(position=cut))

    desk = Desk(tmp_path / "restored", delays_ms=DEFAULT_DELAYS_MS, load=False, **GOLDEN_SIZES)
    wanted = names(desk, delayed=True)
    assert Counter() < names(desk, delayed=False) < wanted
    desk.scheduler.load(*DelayOffsets(
        tmp_path / "restored" / "config" / "delayOffset.json").load())
    desk.settle(now_ms())
    assert names(desk, delayed=False) == wanted


def test_a_transaction_that_was_settled_behind_the_cut_is_asked_about_again(
    tmp_path: Path,
) -> None:
    root = golden.unpack("transactions", tmp_path)
    to_folder(root, tmp_path / "backups")
    everything = list(records(root))
    ops = [one for one in everything if one.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC"]
    halves = [one for one in everything if one.topic == "RMQ_SYS_TRANS_HALF_TOPIC"]
    cut = ops[len(ops) // 2]
    half = next(one for one in halves if one.queue_offset == int(cut.body))
    before = offsets(root)

    restore(tmp_path / "backups", tmp_path / "restored", Until(position=cut.physical_offset))

    after = offsets(tmp_path / "restored")
    key = "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"
    assert after[key]["0"] <= half.queue_offset
    assert after[key]["0"] <= before[key]["0"]
    named = {int(one.body) for one in ops if one.physical_offset < cut.physical_offset}
    keys = {one.properties["UNIQ_KEY"] for one in halves if one.queue_offset in named}
    skipped = [one for one in halves if one.queue_offset < after[key]["0"]
               and one.properties["UNIQ_KEY"] not in keys]
    copies = {one.properties["UNIQ_KEY"] for one in halves
              if after[key]["0"] <= one.queue_offset and one.physical_offset < cut.physical_offset}
    assert {one.properties["UNIQ_KEY"] for one in skipped} <= copies


@pytest.mark.parametrize("name", golden.NAMES)
def test_a_stock_store_is_the_same_after_backup_and_restore(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    expected = golden.manifest(name)["afterRecovery"]

    made = to_folder(root, tmp_path / "backups")
    done = restore(tmp_path / "backups", tmp_path / "restored")

    assert (done.end, done.messages) == (expected["maxPhyOffset"], expected["messageCount"])
    assert_prefix(root, tmp_path / "restored", made.manifest.first, done.end)
    assert done.report.status in (0, STATUS_MEND), done.report.findings
    assert not (tmp_path / "restored" / "abort").exists()
    if name in ("basic", "delay_retry_dlq", "filter_ext", "ipv6", "lmq", "transactions"):
        assert_sound(tmp_path / "restored")
    for table in (root / "config").glob("*.json"):
        assert (tmp_path / "restored" / "config" / table.name).exists()


def test_a_cut_within_what_a_stock_broker_wrote_keeps_what_is_before_it(tmp_path: Path) -> None:
    """One checksum entry without a sum covers all of it: it is cut as well."""
    root = golden.unpack("basic", tmp_path)
    end = golden.manifest("basic")["afterRecovery"]["maxPhyOffset"]
    (root / "checksums").mkdir()
    for path in (root / "commitlog").iterdir():
        size = min(path.stat().st_size, end - int(path.name))
        (root / "checksums" / path.name).write_bytes(struct.pack(">II", size, 0))
    owner.mark_alone(root / "lock")
    assert verify(root).status == 0
    to_folder(root, tmp_path / "backups")
    everything = list(records(root))
    last = max(int(path.name) for path in (root / "commitlog").iterdir())
    cut = next(one for one in everything if one.physical_offset > last + 2000)

    done = restore(tmp_path / "backups", tmp_path / "restored",
                   Until(position=cut.physical_offset))

    assert done.messages == everything.index(cut)
    assert done.report.status in (0, STATUS_MEND)
    sums = (tmp_path / "restored" / "checksums" / f"{last:020d}").read_bytes()
    assert struct.unpack(">II", sums) == (done.end - last, 0)
