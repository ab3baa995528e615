"""The filters of consumer groups: registered, replaced, dead, revived, kept (broker.md 7.7)."""
from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mqcore.filter.bloom import BloomFilter
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

GOLDEN = Path(__file__).parents[1] / "golden" / "config" / "consumerFilter.json"
DAY_MS = 86_400_000
V = 1_700_000_000_000


def beat(
    bench: Bench, topics: dict[str, tuple[str, int]], *, kind: str = "SQL92", connection: int = 1,
) -> None:
    answer = bench.ask(34, None, {"clientID": "c", "consumerDataSet": [{
        "groupName": "g", "subscriptionDataSet": [
            {"topic": topic, "subString": expression, "subVersion": version,
             "expressionType": kind}
            for topic, (expression, version) in topics.items()
        ],
    }]}, connection=connection)
    assert answer.code == 0


def shown(bench: Bench, topic: str = "T") -> tuple[str, int, bool] | None:
    """Expression, version, dead; of the copy that serving processes see."""
    data = bench.tables.shown.get(("g", topic))
    return None if data is None else (data.expression, data.version_ms, data.dead)


def test_a_heartbeat_registers_expressions_and_no_tags(bench: Bench) -> None:
    beat(bench, {"T": ("a > 1", V)})
    beat(bench, {"T": ("a > 1", V), "U": ("x || y", V)}, kind="TAG")

    data = bench.tables.shown["g", "T"]
    assert list(bench.tables.shown) == [("g", "T")]
    assert (data.born_ms, data.dead_ms) == (NOW_MS, 0)
    assert data.positions == BloomFilter.for_rate().subscription_positions("g", "T")


def test_a_newer_version_replaces_and_an_older_one_changes_nothing(bench: Bench) -> None:
    beat(bench, {"T": ("a > 1", V)})
    bench.now_ms += 1000
    beat(bench, {"T": ("a > 2", V - 1)})
    beat(bench, {"T": ("a > 2", V)})
    assert shown(bench) == ("a > 1", V, False)

    beat(bench, {"T": ("a > 1", V + 1)})
    assert (shown(bench), bench.tables.shown["g", "T"].born_ms) == (("a > 1", V + 1, False), NOW_MS)
    beat(bench, {"T": ("a > 2", V + 2)})
    assert (shown(bench), bench.tables.shown["g", "T"].born_ms) == (
        ("a > 2", V + 2, False), NOW_MS + 1000)


def test_a_newer_expression_that_does_not_compile_leaves_none(bench: Bench) -> None:
    beat(bench, {"T": ("a > 1", V)})
    beat(bench, {"T": ("a >", V + 1)})
    assert shown(bench) is None

    beat(bench, {"T": ("a > 3", V + 2)})
    assert shown(bench) == ("a > 3", V + 2, False)


def test_an_empty_expression_changes_nothing(bench: Bench) -> None:
    beat(bench, {"T": ("", V)})
    assert shown(bench) is None

    beat(bench, {"T": ("a > 1", V)})
    beat(bench, {"T": ("", V + 1)})
    assert shown(bench) == ("a > 1", V, False)


def test_a_filter_dies_with_its_topic_and_with_its_group_and_comes_back(bench: Bench) -> None:
    beat(bench, {"T": ("a > 1", V), "U": ("b > 1", V)})
    bench.now_ms += 1000
    beat(bench, {"T": ("a > 1", V)})
    assert shown(bench, "U") == ("b > 1", V, True)
    assert bench.tables.shown["g", "U"].dead_ms == NOW_MS + 1000

    bench.broker.connection_closed(1)
    bench.broker.tick(NOW_MS + 20_000)
    assert shown(bench, "T") == ("a > 1", V, True)

    bench.now_ms = NOW_MS + 30_000
    beat(bench, {"T": ("a > 1", V), "U": ("b > 1", V + 1)})
    assert (shown(bench, "T"), shown(bench, "U")) == (
        ("a > 1", V, False), ("b > 1", V + 1, False))
    assert bench.tables.shown["g", "T"].born_ms == NOW_MS


@pytest.mark.parametrize("leave", ["closes", "unregisters"])
def test_a_group_is_there_while_one_member_is(bench: Bench, leave: str) -> None:
    beat(bench, {"T": ("a > 1", V)})
    beat(bench, {"T": ("a > 1", V)}, connection=2)
    for connection in (1, 2):
        assert shown(bench) == ("a > 1", V, False)
        if leave == "closes":
            bench.broker.connection_closed(connection)
        else:
            bench.ask(35, {"clientID": "c", "consumerGroup": "g"}, connection=connection)
        bench.broker.tick(NOW_MS + 10_000 * connection)
    assert shown(bench) == ("a > 1", V, True)


def test_a_filter_that_has_been_dead_for_a_day_is_forgotten(bench: Bench) -> None:
    beat(bench, {"T": ("a > 1", V)})
    bench.broker.connection_closed(1)
    bench.broker.tick(NOW_MS + 10_000)
    bench.broker.tick(NOW_MS + 10_000 + DAY_MS - 1)
    assert shown(bench) is not None

    bench.broker.tick(NOW_MS + 30_000 + DAY_MS)
    assert shown(bench) is None
    assert bench.broker.core.filters.get("g", "T") is None


def test_the_table_is_full(bench: Bench) -> None:
    bench.tables.filter_count_max = 0
    answer = bench.ask(34, None, {"clientID": "c", "consumerDataSet": [{
        "groupName": "g", "subscriptionDataSet": [
            {"topic": "T", "subString": "a > 1", "subVersion": V, "expressionType": "SQL92"}]}]})

    assert (answer.code, answer.remark) == (1, "no room for another filter")
    assert bench.broker.core.filters.get("g", "T") is None


# -- the file --------------------------------------------------------------------------------------


def started_with(folder: Path, text: str, *overrides: str) -> Bench:
    settings = settings_in(folder, *overrides)
    settings.config_dir.mkdir(parents=True, exist_ok=True)
    (settings.config_dir / "consumerFilter.json").write_text(text)
    return make_bench(settings)


def test_the_file_of_a_stock_broker_is_read_and_written_alike(tmp_path: Path) -> None:
    bench = started_with(tmp_path, GOLDEN.read_text())

    data = bench.tables.shown["cg_golden_sql1", "golden_sql"]
    assert (data.expression, data.version_ms) == ("region IN ('eu','us') OR vip = TRUE",
                                                  1795248637259)
    assert (data.born_ms, data.dead_ms, data.positions) == (
        1795248637214, 1795248646200, (45, 51, 86))
    bench.broker.core.filters.persist()
    written = bench.broker.core.settings.config_dir / "consumerFilter.json"
    assert json.loads(written.read_text()) == json.loads(GOLDEN.read_text())
    assert written.read_text().startswith('{\n\t"filterDataByTopic":{\n\t\t"golden_sql":{')
    assert '"bitPos":[45,51,86]' in written.read_text()


def test_what_was_alive_in_the_file_died_half_a_minute_before_the_start(tmp_path: Path) -> None:
    text = GOLDEN.read_text().replace('"dead":true', '"dead":false')
    for dead in ("1795248646181", "1795248646200", "1795248646212"):
        text = text.replace(f'"deadTime":{dead}', '"deadTime":0')
    bench = started_with(tmp_path, text)

    for data in bench.tables.shown.values():
        assert data.dead
        assert data.dead_ms == max(NOW_MS - 30_000, data.born_ms)


@pytest.mark.parametrize(("old", "new"), [
    ('"bitNum":112', '"bitNum":104'), ('"bitPos":[41,58,14]', '"bitPos":[41,58]'),
])
def test_a_file_with_other_bit_maps_is_ignored_whole(tmp_path: Path, old: str, new: str) -> None:
    bench = started_with(tmp_path, GOLDEN.read_text().replace(old, new, 1))

    assert bench.tables.shown == {}


def test_other_bit_maps_by_the_settings(tmp_path: Path) -> None:
    assert started_with(tmp_path, GOLDEN.read_text(), "broker.filter_expected_count=64"
                        ).tables.shown == {}


def test_an_entry_that_does_not_compile_is_left_out(tmp_path: Path) -> None:
    bench = started_with(tmp_path, GOLDEN.read_text().replace("price > 100 AND", "price > >"))

    assert sorted(group[-4:] for group, _ in bench.tables.shown) == ["sql1", "sql2"]


def test_changes_are_in_the_file_after_ten_seconds(bench: Bench) -> None:
    path = bench.broker.core.settings.config_dir / "consumerFilter.json"
    bench.broker.tick(NOW_MS + 10_000)
    assert not path.exists()
    beat(bench, {"T": ("a > 1", V)})
    bench.broker.tick(NOW_MS + 20_000)
    first = json.loads(path.read_text())["filterDataByTopic"]["T"]["groupFilterData"]["g"]
    assert (first["dead"], first["deadTime"], first["expression"]) == (False, 0, "a > 1")

    bench.broker.connection_closed(1)
    bench.broker.tick(NOW_MS + 30_000)
    assert json.loads(path.read_text())["filterDataByTopic"]["T"]["groupFilterData"]["g"]["dead"]


def test_what_a_killed_coordinator_left_goes_if_its_group_stays_away(bench: Bench) -> None:
    beat(bench, {"T": ("a > 1", V)})
    stranger = bench.tables.shown["g", "T"]
    bench.tables.shown["stranger", "T"] = stranger
    bench.broker.tick(NOW_MS + 100_000)
    assert ("stranger", "T") in bench.tables.shown

    bench.broker.tick(NOW_MS + 130_000)
    assert list(bench.tables.shown) == [("g", "T")]


def test_the_backup_is_used_when_the_file_is_torn(tmp_path: Path) -> None:
    folder = settings_in(tmp_path).config_dir
    folder.mkdir(parents=True)
    shutil.copy(GOLDEN, folder / "consumerFilter.json.bak")

    assert len(started_with(tmp_path, GOLDEN.read_text()[:300]).tables.shown) == 3
