"""config/*.json is written as 4.9.8 writes it, replaced safely, and read from what is left."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_file import ConfigFileError

GOLDEN = Path(__file__).parents[1] / "golden" / "config"
OFFSETS = {"offsetTable": {"T@G": {0: 120, 1: 118}, "%RETRY%G@G": {0: 4}}}
OFFSETS_TEXT = (
    '{\n\t"offsetTable":{\n\t\t"T@G":{0:120,1:118\n\t\t},\n\t\t"%RETRY%G@G":{0:4\n\t\t}\n\t}\n}'
)


def test_the_text_is_that_of_4_9_8() -> None:
    topics = {"dataVersion": {"counter": 3, "timestamp": 17}, "topicConfigTable": {}}

    assert config_file.pretty(OFFSETS) == OFFSETS_TEXT
    assert config_file.pretty(topics) == (
        '{\n\t"dataVersion":{\n\t\t"counter":3,\n\t\t"timestamp":17\n\t},\n'
        '\t"topicConfigTable":{}\n}'
    )


@pytest.mark.parametrize("file", sorted(GOLDEN.iterdir()), ids=lambda file: file.name)
def test_a_file_of_a_stock_store_is_written_back_byte_for_byte(file: Path) -> None:
    table = config_file.load(file)

    assert table
    assert config_file.pretty(table) == file.read_text()


def test_what_was_saved_is_loaded_and_the_content_before_stays_as_backup(tmp_path: Path) -> None:
    path = tmp_path / "config" / "x.json"
    config_file.save(path, {"a": 1})
    config_file.save(path, OFFSETS)

    assert config_file.load(path) == OFFSETS
    assert config_file.load(path.with_name("x.json.bak")) == {"a": 1}
    assert sorted(file.name for file in path.parent.iterdir()) == ["x.json", "x.json.bak"]


@pytest.mark.parametrize("content", [None, "", "  \n", "{broken", "[1]"])
def test_the_backup_stands_in_for_a_file_that_is_no_use(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "x.json"
    (tmp_path / "x.json.bak").write_text('{"a":{0:1\n\t}}')
    if content is not None:
        path.write_text(content)

    assert config_file.load(path) == {"a": {0: 1}}


def test_no_file_at_all_is_no_error(tmp_path: Path) -> None:
    assert config_file.load(tmp_path / "x.json") is None


def test_a_broken_file_without_a_usable_backup_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{broken")
    with pytest.raises(ConfigFileError, match=r"x\.json: not JSON"):
        config_file.load(tmp_path / "x.json")

    (tmp_path / "x.json.bak").write_text("{broken")
    with pytest.raises(ConfigFileError, match=r"x\.json\.bak: not JSON"):
        config_file.load(tmp_path / "x.json")


def test_an_entry_of_the_wrong_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match=r"x\.json: entry 'T': "):
        config_file.entries(tmp_path / "x.json", {"T": "many"}, lambda name, value: int(value))
