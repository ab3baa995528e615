"""A damaged, incomplete or made-up backup is refused with one line that names what is wrong."""
from __future__ import annotations

import io
import os
import random
import re
import tarfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from mqcore.backup.chain import Backups
from mqcore.backup.errors import BackupError, BadBackupError, BadStoreError
from mqcore.backup.make import to_folder, to_stream
from mqcore.backup.manifest import NAME, Entry, Part, encode, name_trouble
from mqcore.backup.restore import Until, restore
from mqcore.layout import QUEUE_ID_END
from mqcore.store import files
from mqcore.store.crc32 import crc32c
from mqcore.store.ownership import StoreInUseError, StoreLock
from mqcore.store.repair.store import repair
from mqcore.store.verify.store import verify
from tests.backup.stores import changed_manifest, copied, run
from tests.support.waiting import WAIT_S
from tests.verify.stores import flip

SEED = random.randrange(1 << 30)
HOSTILE_NAMES = [
    "../outside", "/etc/passwd", "commitlog/../../outside", "config/../abort", "commitlog", "",
    "consumequeue/../../x/0/00000000000000000000", "consumequeue/a/b/00000000000000000000",
    "consumequeue/a/0/../00000000000000000000", "config/.hidden.json", "config/a/b.json",
    "commitlog/0000000000000000000٣", "commitlog/00000000000000000000\n", "index/..", "lock",
    "abort", "config/queueEnds.bin", "checkpoint", "consumequeue//0/00000000000000000000",
]


def refused(source: Path | io.BytesIO, target: Path, *words: str) -> None:
    """The restore ends with one line that has these words, and leaves nothing."""
    with pytest.raises(BadBackupError) as caught:
        restore(source, target)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    assert not target.exists()
    assert not (target.parent / "outside").exists()


def backup_in(backups: Path) -> Path:
    return backups / Backups(backups).ids()[-1]


def test_one_flipped_bit_anywhere_is_refused(tmp_path: Path, backups: Path) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    files = sorted(path for path in backup_in(backups).rglob("*")
                   if path.is_file() and path.stat().st_size)
    for path in [backup_in(backups) / NAME, *draw.sample(files, 8)]:
        with flip(path, draw.randrange(path.stat().st_size), draw.randrange(8)):
            refused(backups, tmp_path / "restored", path.name)
    assert restore(backups, tmp_path / "restored").report.status == 0


def test_a_missing_short_or_replaced_file_is_refused(tmp_path: Path, backups: Path) -> None:
    segment = backup_in(backups) / "commitlog" / f"{0:020d}"
    content = segment.read_bytes()

    segment.unlink()
    refused(backups, tmp_path / "restored", segment.name, "missing")
    segment.write_bytes(content[:-1])
    refused(backups, tmp_path / "restored", segment.name, f"{len(content) - 1} bytes, expected")
    segment.unlink()
    (tmp_path / "elsewhere").write_bytes(content)
    segment.symlink_to(tmp_path / "elsewhere")
    refused(backups, tmp_path / "restored", segment.name, "no file of a backup")
    (backup_in(backups) / NAME).unlink()
    refused(backups, tmp_path / "restored", NAME, "missing")


def test_a_chain_without_one_of_its_links_is_refused(tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "backups"
    ids = [to_folder(store, folder, incremental=number > 0).manifest.id for number in range(3)]

    (folder / ids[1]).rename(tmp_path / "away")
    refused(folder, tmp_path / "restored", ids[2], f"goes on from {ids[1]}", "missing")
    with pytest.raises(BadBackupError, match="goes on from"):
        to_folder(store, folder, incremental=True)
    (tmp_path / "away").rename(folder / ids[1])
    changed_manifest(folder / ids[1], host="elsewhere")
    refused(folder, tmp_path / "restored", f"goes on from another {ids[1]}")
    assert Backups(folder).ids() == ids


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path, backups: Path) -> None:
    manifest = changed_manifest(backup_in(backups))
    files = [*manifest.files, Entry(name, 5, 0, 0, [])]
    changed_manifest(backup_in(backups), files=files)

    refused(backups, tmp_path / "restored", NAME)


def test_a_queue_may_be_called_as_topics_are() -> None:
    for topic in ("orders", "%RETRY%group", "%LMQ%x", "RMQ_SYS_TRANS_HALF_TOPIC", "中文"):
        assert name_trouble(f"consumequeue/{topic}/0/{0:020d}") is None
    assert name_trouble(f"consumequeue/{'x' * 128}/0/{0:020d}") is not None
    assert name_trouble(f"consumequeue/x/{QUEUE_ID_END}/{0:020d}") is not None


@pytest.mark.parametrize(("what", "change"), [
    ("parts that do not go on", lambda part: setattr(part, "start", 8)),
    ("no backup before this one", lambda part: setattr(part, "backup", "../../x")),
    ("no backup before this one", lambda part: setattr(part, "backup", "99991231T000000Z-0000")),
    ("sums for", lambda part: part.crc32c.append(1)),
    ("and a length of", lambda part: setattr(part, "size", part.size + 1)),
])
def test_parts_that_cannot_be_are_refused(
    what: str, change: Callable[[Part], None], tmp_path: Path, backups: Path,
) -> None:
    manifest = changed_manifest(backup_in(backups))
    change(next(entry for entry in manifest.files if entry.name.startswith("commitlog/")).parts[0])
    changed_manifest(backup_in(backups), files=manifest.files)

    refused(backups, tmp_path / "restored", what)


@pytest.mark.parametrize("members", [
    {"version": 2}, {"end": 5}, {"first": 7}, {"segment_bytes": 0}, {"end": 1 << 40},
    {"parent": "../x"}, {"id": "20260101T000000Z-0000"}, {"end": -1},
])
def test_members_that_cannot_be_are_refused(
    members: dict[str, object], tmp_path: Path, backups: Path,
) -> None:
    changed_manifest(backup_in(backups), **members)

    refused(backups, tmp_path / "restored", NAME)


@pytest.mark.parametrize("member", ["lastTimeMs", "beganMs", "endedMs", "mtimeNs", "inode"])
def test_numbers_that_none_can_be_are_refused(member: str, tmp_path: Path, backups: Path) -> None:
    """The next backup would have them in its own manifest."""
    path = backup_in(backups) / NAME
    inner = msgspec.json.encode(changed_manifest(backup_in(backups)))
    name = member.encode()
    wrong = re.sub(rb'"%s":\d+' % name, b'"%s":1%s' % (name, b"0" * 30), inner)
    assert wrong != inner
    path.write_bytes(b'{"backup":%s,"crc32c":"%08x"}' % (wrong, crc32c(wrong)))

    refused(backups, tmp_path / "restored", NAME)


def test_lengths_and_checksums_that_no_table_and_no_segment_has_are_refused(
    tmp_path: Path, backups: Path,
) -> None:
    path = backup_in(backups) / NAME
    sealed = path.read_bytes()
    manifest = changed_manifest(backup_in(backups))
    table = next(entry for entry in manifest.files if entry.name.startswith("config/"))
    table.length = (1 << 31) - 1
    changed_manifest(backup_in(backups), files=manifest.files)
    refused(backups, tmp_path / "restored", table.name)
    table.length = table.stored
    path.write_bytes(sealed)
    changed_manifest(backup_in(backups), files=[
        *manifest.files, Entry(f"checksums/{1 << 40:020d}", 8, 0, 0, [])])
    refused(backups, tmp_path / "restored", "of no segment")


def test_a_terminal_obeys_no_name_in_a_manifest(tmp_path: Path, backups: Path) -> None:
    manifest = changed_manifest(backup_in(backups))
    twice = Entry(f"consumequeue/\x1b]0;x\x07\u202e/0/{0:020d}", 0, 0, 0, [])
    changed_manifest(backup_in(backups), files=[*manifest.files, twice, twice])

    done = run("store", "restore", backups, tmp_path / "restored")

    assert done.returncode == 1
    assert done.stderr.decode()[:-1].isprintable()
    assert b"\\x1b]0;x\\x07\\u202e/0/" in done.stderr


def test_a_backup_has_a_name_behind_all_others_whatever_they_are(
    tmp_path: Path, store: Path, backups: Path,
) -> None:
    """A clock was ahead, and each backup since has taken the next number."""
    last = "20991231T235959Z-9999"
    manifest = changed_manifest(backup_in(backups), id=last, files=[
        msgspec.structs.replace(entry, parts=[msgspec.structs.replace(part, backup=last)
                                              for part in entry.parts])
        for entry in changed_manifest(backup_in(backups)).files])
    backup_in(backups).rename(backups / last)

    made = [to_folder(store, backups, incremental=True).manifest for _ in range(2)]

    assert Backups(backups).ids() == [manifest.id, *(one.id for one in made)]
    assert [one.parent for one in made] == [last, made[0].id]


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"backup":1}'])
def test_what_is_no_manifest_is_refused(content: bytes, tmp_path: Path, backups: Path) -> None:
    (backup_in(backups) / NAME).write_bytes(content)

    refused(backups, tmp_path / "restored", NAME)


# -- streams ---------------------------------------------------------------------------------------

def stream_of(store: Path) -> bytes:
    out = io.BytesIO()
    to_stream(store, out)
    return out.getvalue()


def test_a_stream_that_is_cut_off_anywhere_is_refused(tmp_path: Path, store: Path) -> None:
    print(f"seed {SEED}")
    raw = stream_of(store)
    draw = random.Random(SEED)
    manifest_at = raw.rindex(NAME.encode())
    for length in (0, 100, 512, manifest_at, manifest_at + 600,
                   *(draw.randrange(len(raw) - 2048) for _ in range(5))):
        refused(io.BytesIO(raw[:length]), tmp_path / "restored", "stream")
    assert restore(io.BytesIO(raw), tmp_path / "restored").report.status == 0


@pytest.mark.parametrize(("kind", "name", "word"), [
    (tarfile.REGTYPE, "../outside", "outside"), (tarfile.REGTYPE, "/outside", "outside"),
    (tarfile.SYMTYPE, f"commitlog/{0:020d}", "no plain file"),
    (tarfile.LNKTYPE, f"commitlog/{0:020d}", "no plain file"),
    (tarfile.CHRTYPE, f"commitlog/{0:020d}", "no plain file"),
    (tarfile.FIFOTYPE, f"commitlog/{0:020d}", "no plain file"),
    (tarfile.DIRTYPE, "commitlog", "no plain file"),
    (tarfile.XHDTYPE, "pax", "no plain file"), (tarfile.GNUTYPE_LONGNAME, "long", "no plain file"),
    (tarfile.GNUTYPE_SPARSE, f"commitlog/{0:020d}", "no plain file"),
])
def test_members_that_no_backup_has_are_refused(
    kind: bytes, name: str, word: str, tmp_path: Path, store: Path,
) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, "/etc/passwd", 0
    raw = info.tobuf(tarfile.USTAR_FORMAT) + stream_of(store)

    refused(io.BytesIO(raw), tmp_path / "restored", word)


def test_a_member_twice_one_too_many_and_one_of_a_wrong_length_are_refused(
    tmp_path: Path, store: Path,
) -> None:
    raw = stream_of(store)
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        first = archive.getmembers()[0]
    size = 512 + -(-first.size // 512) * 512

    refused(io.BytesIO(raw[:size] + raw), tmp_path / "restored", first.name, "twice")
    refused(io.BytesIO(raw[size:]), tmp_path / "restored", first.name, "missing")
    more = tarfile.TarInfo(f"index/{7:017d}").tobuf(tarfile.USTAR_FORMAT)
    refused(io.BytesIO(raw.rstrip(b"\0")[:-1] + b"}" + more), tmp_path / "restored", "stream")


# -- stores ----------------------------------------------------------------------------------------

def test_a_damaged_store_is_not_backed_up(tmp_path: Path, store: Path) -> None:
    broken = copied(store, tmp_path / "store")
    segment = broken / "commitlog" / f"{0:020d}"
    with flip(segment, 5000), pytest.raises(BadStoreError, match="mqcore store verify"):
        to_folder(broken, tmp_path / "backups")
    segment.rename(tmp_path / "away")
    to_folder(broken, tmp_path / "backups")
    second = sorted((broken / "commitlog").iterdir())[1]
    (tmp_path / "away").rename(segment)
    second.unlink()
    with pytest.raises(BadStoreError, match="no segment"):
        to_folder(broken, tmp_path / "others")
    assert Backups(tmp_path / "others").ids() == []


def test_a_damaged_store_is_taken_as_it_is_when_asked_and_can_be_repaired_afterwards(
    tmp_path: Path, store: Path,
) -> None:
    broken = copied(store, tmp_path / "store")
    with (broken / "commitlog" / f"{0:020d}").open("r+b") as segment:
        segment.seek(5000)
        segment.write(bytes(400))
    made = to_folder(broken, tmp_path / "backups", damaged=True)
    assert "commitlog" in made.manifest.damage

    restored = restore(tmp_path / "backups", tmp_path / "restored")

    assert restored.report.status == 1
    assert repair(tmp_path / "restored", tmp_path / "found", dry=False).status in (0, 3)
    with pytest.raises(BackupError, match="as a whole"):
        restore(tmp_path / "backups", tmp_path / "cut", Until(position=900_000))
    again = to_folder(broken, tmp_path / "backups", incremental=True, damaged=True)
    assert again.manifest.damage == made.manifest.damage


def test_an_incremental_backup_of_another_store_is_refused(tmp_path: Path, store: Path) -> None:
    to_folder(store, tmp_path / "backups")
    other = copied(store, tmp_path / "other")
    last = max((other / "commitlog").iterdir())
    raw = last.read_bytes()
    last.write_bytes(raw[:len(raw.rstrip(b"\0")) // 2].ljust(len(raw), b"\0"))
    with pytest.raises(BackupError, match="without --incremental"):
        to_folder(other, tmp_path / "backups", incremental=True)


def test_a_place_in_the_store_and_one_that_is_not_empty_are_refused(
    tmp_path: Path, store: Path, backups: Path,
) -> None:
    with pytest.raises(BackupError, match="lies in the store"):
        to_folder(store, store / "backups")
    linked = copied(store, tmp_path / "linked")
    (linked / "index").rename(tmp_path / "elsewhere")
    (linked / "index").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackupError, match="lies in the store"):
        to_folder(linked, tmp_path / "elsewhere" / "backups")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(BackupError, match="not empty"):
        restore(backups, tmp_path / "full")
    assert (tmp_path / "full" / "something").exists()
    (tmp_path / "empty").mkdir()
    restore(backups, tmp_path / "empty")


def test_a_place_of_several_lines_is_refused(tmp_path: Path, backups: Path) -> None:
    with pytest.raises(BackupError, match="expected a path of one line"):
        restore(backups, tmp_path / "two\nlines")
    assert not (tmp_path / "two\nlines").exists()


@pytest.mark.parametrize("name", ["lock", "abort", "config/consumerOffset.json"])
def test_no_pipe_in_a_store_is_waited_for(name: str, tmp_path: Path, store: Path) -> None:
    source = copied(store, tmp_path / "source")
    (source / name).unlink(missing_ok=True)
    os.mkfifo(source / name)
    said: list[str] = []

    def look() -> None:
        for command in (partial(to_folder, source, tmp_path / "backups"), partial(verify, source)):
            try:
                command()
            except (OSError, BackupError) as error:
                said.append(str(error))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(WAIT_S)                       # as long as a slow machine takes
    assert not looking.is_alive()
    assert f"{name}'" in "".join(said)


def test_no_broker_begins_where_a_restore_is_at_work(tmp_path: Path, backups: Path) -> None:
    """And none has begun there before it, and keeps its lock."""
    target = tmp_path / "restored"
    held: list[bool] = []

    def look(_bytes: int) -> None:
        with pytest.raises(StoreInUseError):
            StoreLock(target, changes=True)
        held.append(True)

    target.mkdir()
    assert restore(backups, target, told=look).report.status == 0
    assert held
    StoreLock(target, changes=True).release()

    begun = tmp_path / "begun"
    real = files.calls.make_folder
    locks: list[StoreLock] = []

    def begins(folder: Path, mode: int) -> None:
        real(folder, mode)
        if folder.parent == begun:
            locks.append(StoreLock(begun, changes=True))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files.calls, "make_folder", begins)
        begun.mkdir()
        with pytest.raises(BackupError, match="a broker runs on this store"):
            restore(backups, begun)
    assert [path.name for path in begun.iterdir()] == ["lock"]
    locks.pop().release()


def test_no_store_is_taken_for_a_backup_and_removed(tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "backups"
    called_so = copied(store, folder / "20200101T000000Z-0000")
    with pytest.raises(BackupError, match="is called as a backup"):
        to_folder(called_so, folder, keep=1)

    removed = [to_folder(store, folder, keep=1).removed for _ in range(2)]

    assert removed[0] == []
    assert len(removed[1]) == 1
    assert (called_so / "commitlog").is_dir()


def test_a_sealed_manifest_says_what_it_was_made_of(backups: Path) -> None:
    """Other members than those known are another version's."""
    path = backup_in(backups) / NAME
    value = msgspec.json.decode(path.read_bytes())
    manifest = changed_manifest(backup_in(backups))
    assert path.read_bytes() == encode(manifest)
    assert set(value) == {"backup", "crc32c"}
    assert value["backup"]["beganMs"] <= value["backup"]["endedMs"]
