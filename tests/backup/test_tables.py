"""The tables of a store come back as they were: offsets, whose file counts, who may read them."""
from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from mqcore.backup.errors import BadStoreError
from mqcore.backup.make import to_folder, to_stream
from mqcore.backup.restore import restore
from mqcore.broker.tables.light_queues import LIGHT_FILE, PLAIN_FILE, LightOffsetTable
from mqcore.broker.tables.offsets import OffsetTable
from mqcore.layout import CQ_ENTRY_SIZE
from mqcore.store.verify.store import verify
from tests.backup.stores import assert_starts, copied, offsets
from tests.verify.stores import TOPIC, expired

PLAIN_GROUP, LIGHT_GROUP = "plain", "%LMQ%light"


def tables_of(store: Path) -> tuple[OffsetTable, LightOffsetTable]:
    """As a broker without and one with light queues finds them."""
    config = store / "config"
    plain = OffsetTable(config / PLAIN_FILE, sibling=config / LIGHT_FILE)
    light = LightOffsetTable(config / LIGHT_FILE)
    for table in (plain, light):
        table.load()
    return plain, light


@pytest.mark.parametrize("younger", [PLAIN_FILE, LIGHT_FILE])
def test_of_two_files_of_offsets_the_same_one_counts(
    younger: str, tmp_path: Path, store: Path,
) -> None:
    source = copied(store, tmp_path / "source")
    config = source / "config"
    plain = OffsetTable(config / PLAIN_FILE)
    plain.commit(PLAIN_GROUP, TOPIC, 0, 3)
    plain.persist()
    light = LightOffsetTable(config / LIGHT_FILE)
    light.commit(PLAIN_GROUP, TOPIC, 0, 5)
    light.commit(LIGHT_GROUP, TOPIC, 0, 7)
    light.persist()
    for path in config.glob("*onsumerOffset*"):
        old_ns = path.stat().st_mtime_ns - (0 if path.name.startswith(younger) else 10**10)
        os.utime(path, ns=(old_ns, old_ns))
    expected = 3 if younger == PLAIN_FILE else 5
    to_folder(source, tmp_path / "backups")

    restore(tmp_path / "backups", tmp_path / "restored")

    for root in (source, tmp_path / "restored"):
        for table in tables_of(root):
            assert table.committed(PLAIN_GROUP, TOPIC, 0) == expected, root
        assert tables_of(root)[1].committed(LIGHT_GROUP, TOPIC, 0) == 7


def test_what_a_slave_had_to_say_to_its_master_is_not_said_again(
    tmp_path: Path, store: Path,
) -> None:
    source = copied(store, tmp_path / "source")
    (source / "config" / "ownOffsets.json").write_text('{"offsetTable":{"T@G":{0:300}}}')
    to_folder(source, tmp_path / "backups")

    restore(tmp_path / "backups", tmp_path / "restored")

    assert not list((tmp_path / "restored" / "config").glob("ownOffsets*"))


@pytest.mark.parametrize("text", ['{"offsetTable":{1:0}', '{"offsetTable":{1:-7}}', "[]", "{}}"])
def test_a_table_that_no_start_reads_is_taken_from_its_copy_or_refused(
    text: str, tmp_path: Path, store: Path,
) -> None:
    source = copied(store, tmp_path / "source")
    table, kept = (source / "config" / f"delayOffset.json{end}" for end in ("", ".bak"))
    table.write_text(text)
    kept.unlink(missing_ok=True)
    with pytest.raises(BadStoreError, match=r"delayOffset\.json.*mqcore store repair"):
        to_folder(source, tmp_path / "refused")
    kept.write_text('{"offsetTable":{1:0}}')
    to_folder(source, tmp_path / "backups")

    assert restore(tmp_path / "backups", tmp_path / "restored").report.status == 0


def test_a_link_in_the_place_of_a_table_leads_nowhere(tmp_path: Path, store: Path) -> None:
    source = copied(store, tmp_path / "source")
    (tmp_path / "secret").write_text("{}")
    (source / "config" / "consumerOffset.journal").symlink_to(tmp_path / "secret")

    with pytest.raises(OSError, match=r"consumerOffset\.journal"):
        to_folder(source, tmp_path / "backups")


def test_nobody_reads_a_copy_who_could_not_read_the_store(tmp_path: Path, store: Path) -> None:
    source = copied(store, tmp_path / "source")
    source.chmod(0o700)
    made = to_folder(source, tmp_path / "backups")
    with (tmp_path / "stream").open("wb") as stream:
        to_stream(source, stream)

    restore(tmp_path / "backups", tmp_path / "restored")

    with tarfile.open(tmp_path / "stream") as tar:
        modes = [member.mode for member in tar.getmembers()]
    modes += [path.stat().st_mode for path in (Path(made.path), tmp_path / "restored")]
    assert [mode for mode in modes if mode & 0o077] == []


def test_a_queue_whose_messages_are_gone_keeps_its_numbers_when_others_are_written_anew(
    tmp_path: Path, store: Path,
) -> None:
    """At 0 its groups, which are at 9, would pass over the next nine messages."""
    source = copied(store, tmp_path / "source")
    busy = max((source / "consumequeue" / TOPIC / "0").iterdir())
    raw = busy.read_bytes()
    expired(source, 9)
    assert verify(source).status == 0
    end = len(raw.rstrip(b"\0")) // CQ_ENTRY_SIZE * CQ_ENTRY_SIZE
    busy.write_bytes(raw[:end - CQ_ENTRY_SIZE].ljust(len(raw), b"\0"))
    (source / "config" / "consumerOffset.json").write_text(
        f'{{"offsetTable":{{"idle@G":{{0:9}},"{TOPIC}@G":{{0:375}}}}}}')
    to_folder(source, tmp_path / "backups")

    done = restore(tmp_path / "backups", tmp_path / "restored")

    assert set(done.rebuilt) == {"consumequeue", "consumequeue_ext", "index"}
    assert offsets(tmp_path / "restored") == {"idle@G": {"0": 9}, f"{TOPIC}@G": {"0": 375}}
    again = assert_starts(tmp_path / "restored", tmp_path / "again")
    ends = {(queue["topic"], queue["queueId"]): queue["end"] for queue in verify(again).queues}
    assert (ends["idle", 0], ends[TOPIC, 0]) == (9, 375)
