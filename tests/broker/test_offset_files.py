"""Consumer offsets on disk: the JSON file of stock, and the journal of what changed since."""
from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mqcore.broker.tables import config_file, offset_files
from mqcore.broker.tables.config_file import ConfigFileError
from mqcore.broker.tables.light_queues import LightOffsetTable
from mqcore.broker.tables.offsets import OffsetTable
from mqcore.store import files

LATER_MS = 5_000


@pytest.fixture(autouse=True)
def file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the disk took a byte in half a second: the file is written every 300 s."""
    monkeypatch.setattr(offset_files, "FILE_BYTES_A_MS", 0.002)


def table_in(folder: Path, **commits: int) -> OffsetTable:
    table = OffsetTable(folder / "consumerOffset.json")
    for group, offset in commits.items():
        table.commit(group, "T", 0, offset)
    return table


def write(table: OffsetTable, now_ms: int = 0) -> None:
    for _ in table.files.begin(now_ms):
        continue


def loaded(folder: Path) -> dict[str, dict[int, int]]:
    table = OffsetTable(folder / "consumerOffset.json")
    table.load()
    found: dict[str, dict[int, int]] = table.as_json()["offsetTable"]
    return found


def journal(folder: Path) -> Path:
    return folder / "consumerOffset.journal"


def test_the_file_is_that_of_4_9_8(tmp_path: Path) -> None:
    table = table_in(tmp_path, G=5, H=6)
    table.commit("G", "T", 7, 8)
    write(table)

    text = (tmp_path / "consumerOffset.json").read_text()
    assert text == '{\n\t"offsetTable":{\n\t\t"T@G":{0:5,7:8\n\t\t},\n\t\t"T@H":{0:6\n\t\t}\n\t}\n}'
    assert text == config_file.pretty(table.as_json())


def test_an_empty_table_is_a_file_too(tmp_path: Path) -> None:
    table_in(tmp_path).persist()

    assert (tmp_path / "consumerOffset.json").read_text() == '{\n\t"offsetTable":{}\n}'


def test_what_changes_between_two_files_is_in_the_journal(tmp_path: Path) -> None:
    table = table_in(tmp_path, G=5, H=6, I=7)
    write(table)
    before = (tmp_path / "consumerOffset.json").read_bytes()
    table.commit("G", "T", 3, 50)
    table.remove_group("H")
    table.commit("new", "T", 0, 1)
    write(table, LATER_MS)
    table.commit("G", "T", 3, 40)
    write(table, 2 * LATER_MS)

    assert (tmp_path / "consumerOffset.json").read_bytes() == before
    assert loaded(tmp_path) == {"T@G": {0: 5, 3: 40}, "T@I": {0: 7}, "T@new": {0: 1}}
    assert not table.dirty


def test_an_orderly_end_leaves_the_file_alone(tmp_path: Path) -> None:
    table = table_in(tmp_path, G=5)
    write(table)
    table.commit("G", "T", 0, 6)
    write(table, LATER_MS)
    assert journal(tmp_path).exists()
    table.persist()

    assert config_file.load(tmp_path / "consumerOffset.json") == {"offsetTable": {"T@G": {0: 6}}}
    assert not journal(tmp_path).exists()


def test_a_torn_end_of_the_journal_is_left_out(tmp_path: Path) -> None:
    table = table_in(tmp_path, G=5)
    write(table)
    for turn in (1, 2):
        table.commit("G", "T", 0, 5 + turn)
        write(table, turn * LATER_MS)
    raw = journal(tmp_path).read_bytes()
    found = set()
    for length in range(len(raw) + 1):
        journal(tmp_path).write_bytes(raw[:length])
        found.add(loaded(tmp_path)["T@G"][0])

    assert found == {5, 6, 7}
    assert loaded(tmp_path) == {"T@G": {0: 7}}


def test_the_journal_of_another_file_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_in(tmp_path, G=5)
    write(table)
    table.commit("G", "T", 0, 6)
    write(table, LATER_MS)
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:90}}}')    # by stock

    assert loaded(tmp_path) == {"T@G": {0: 90}}
    assert "consumerOffset.journal does not belong to consumerOffset.json" in caplog.text


@pytest.mark.parametrize("last_call", range(40))
def test_a_kill_at_any_call_loses_nothing_that_was_written(tmp_path: Path, last_call: int) -> None:
    """The file is written anew behind a journal; the process dies at each call to the disk."""
    table = table_in(tmp_path, G=5, H=6)
    write(table)
    table.commit("G", "T", 0, 7)
    write(table, LATER_MS)
    before = loaded(tmp_path)
    table.commit("H", "T", 0, 8)

    class Killed(Exception):
        pass

    calls = 0

    def counted(call):
        def wrapper(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls > last_call:
                raise Killed
            return call(*arguments, **options)
        return wrapper

    changing = ("write_at", "truncate", "sync", "sync_data", "rename", "unlink")
    try:
        with files.replaced(**{name: counted(getattr(files.calls, name)) for name in changing}):
            table.persist()
    except Killed:
        assert loaded(tmp_path) in (before, {"T@G": {0: 7}, "T@H": {0: 8}})
    else:
        assert loaded(tmp_path) == {"T@G": {0: 7}, "T@H": {0: 8}}
        assert calls <= last_call < 40


@pytest.mark.parametrize("call", ["write_at", "sync", "sync_data", "rename"])
@pytest.mark.parametrize("whole", [True, False])
def test_what_a_full_disk_refused_is_written_the_next_time(
    tmp_path: Path, call: str, whole: bool
) -> None:
    table = table_in(tmp_path, G=5)
    write(table)
    table.commit("G", "T", 0, 6)
    write(table, LATER_MS)
    table.commit("G", "T", 0, 7)
    table.commit("H", "T", 0, 8)

    def refuse(*_arguments, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def torn(fd, view, offset):
        os.pwrite(fd, view[:len(view) // 2], offset)
        refuse()

    used = {("rename", False), ("sync", False)}
    with files.replaced(**{call: torn if call == "write_at" else refuse}):
        if (call, whole) in used:
            pytest.skip("not called for the journal")
        with pytest.raises(OSError, match="No space left"):
            table.persist() if whole else write(table, 2 * LATER_MS)
    assert table.dirty
    assert loaded(tmp_path)["T@G"][0] in (6, 7)
    write(table, 3 * LATER_MS)

    assert loaded(tmp_path) == {"T@G": {0: 7}, "T@H": {0: 8}}
    assert not table.dirty


def test_a_broken_file_is_replaced_by_its_backup_and_the_changes_since(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_in(tmp_path, G=5)
    write(table)
    table.commit("H", "T", 0, 8)
    table.persist()
    path = tmp_path / "consumerOffset.json"
    path.write_bytes(path.read_bytes()[:-9])

    assert loaded(tmp_path) == {"T@G": {0: 5}}
    assert "consumerOffset.json: not JSON: the text ends too early" in caplog.text
    assert "consumerOffset.json.bak is used" in caplog.text


def test_members_that_we_do_not_know_survive(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"dataVersion":{"counter":7,"stateVersion":1},"offsetTable":{"T@G":{0:1}},'
                    '"zone":["a"]}')
    table = OffsetTable(path)
    table.load()
    table.commit("G", "T", 0, 2)
    table.persist()

    assert path.read_text() == (
        '{\n\t"dataVersion":{\n\t\t"counter":7,\n\t\t"stateVersion":1\n\t},\n'
        '\t"offsetTable":{\n\t\t"T@G":{0:2\n\t\t}\n\t},\n\t"zone":["a"]\n}')


def test_light_groups_have_a_table_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "lmqConsumerOffset.json"
    table = LightOffsetTable(path)
    table.commit("%LMQ%g", "%LMQ%t", 9, 4)
    table.commit("G", "T", 1, 5)
    write(table)
    assert path.read_text() == config_file.pretty(table.as_json())
    table.commit("%LMQ%g", "%LMQ%t", 0, 6)
    write(table, LATER_MS)

    again = LightOffsetTable(path)
    again.load()
    assert again.as_json() == {"lmqOffsetTable": {"%LMQ%t@%LMQ%g": 6},
                               "offsetTable": {"T@G": {1: 5}}}


def test_a_topic_with_an_at_sign_is_the_same_pair_as_in_the_file(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.commit("c", "a@b", 0, 1)
    table.commit("b@c", "a", 0, 2)
    table.persist()

    assert table.committed("c", "a@b", 0) == 2
    assert loaded(tmp_path) == {"a@b@c": {0: 2}}


@pytest.mark.parametrize(("text", "expected"), [
    ('{"offsetTable":{"T@G":{0:1}', "found the end"),
    ('{"offsetTable":{"T@G":7}}', "entry 'T@G': 7: expected an object"),
    ('{"offsetTable":{"T@G":{0:"x"}}}', "entry 'T@G': invalid literal"),
    ('{"offsetTable":{"T@G":{0:1e300}}}', "expected an offset"),
    ('{"offsetTable":{"T@G":{0:99999999999999999999}}}', "expected an offset"),
    ('{"offsetTable":[1]}', "expected an object"),
    ('{"offsetTable":{},"x":' + "[" * 200 + "]" * 200 + "}", "nested deeper"),
    ("[1]", "expected a JSON object"),
])
def test_a_file_that_cannot_be_used_is_named_with_the_place(
    tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "consumerOffset.json").write_text(text)

    with pytest.raises(ConfigFileError, match=expected) as raised:
        loaded(tmp_path)
    assert "consumerOffset.json" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_in_place_of_the_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").mkdir()

    with pytest.raises(ConfigFileError, match="Is a directory: expected a JSON file"):
        loaded(tmp_path)


def test_a_table_beyond_any_frame_is_read_back(tmp_path: Path) -> None:
    """More text than a peer may send in a frame: the file has limits of its own."""
    table = table_in(tmp_path)
    for number in range(60_000):
        table.commit(f"{'g' * 255}{number}", f"{'t' * 60}", 0, number)
    table.persist()

    assert (tmp_path / "consumerOffset.json").stat().st_size > 16 << 20
    assert len(loaded(tmp_path)) == 60_000


@pytest.mark.parametrize("make", [OffsetTable, LightOffsetTable])
def test_a_few_pairs_are_read_without_the_others(tmp_path: Path, make: type[OffsetTable]) -> None:
    path = tmp_path / "consumerOffset.json"
    table = OffsetTable(path)
    for number in range(100):
        table.commit(f"G{number}", "T", 0, number)
        table.commit("x", f'"T@G{number}":{{0:1}}', 0, 9)
    write(table)
    table.commit("G7", "T", 1, 70)
    table.commit("G8", "T", 0, 80)
    write(table, LATER_MS)
    few = make(path if make is OffsetTable else tmp_path / "lmqConsumerOffset.json")
    few.load_only([("T", "G7"), ("T", "G8"), ("T", "none")])

    assert {name for name in [f"G{number}" for number in range(100)] + ["x"]
            if few.topics_of(name)} == {"G7", "G8"}
    assert (few.of_queues("G7", "T"), few.of_queues("G8", "T")) == ({0: 7, 1: 70}, {0: 80})
