"""Windows over what was put and got, and where the counts come from (broker.md 11)."""
from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from mqcore.broker.statistics import ITEM_COUNT_MAX, Statistics, Window
from mqcore.wire import fastjson
from tests.broker.fakes import NOW_MS, Bench

SECOND_MS = 1000


def started() -> Statistics:
    statistics = Statistics()
    statistics.sample(NOW_MS, "C", {}, {}, (0, 0))
    return statistics


def put(statistics: Statistics, seconds: int, count: int, topic: str = "T") -> None:
    """`count` messages until `seconds` after the start."""
    statistics.sample(NOW_MS + seconds * SECOND_MS, "C", {topic: count}, {}, (0, 0))


def minute(statistics: Statistics, key: str = "T", name: str = "TOPIC_PUT_NUMS") -> Window:
    windows = statistics.windows(name, key)
    assert windows is not None
    return windows.minute


def test_an_item_that_was_never_counted_is_unknown() -> None:
    statistics = started()
    put(statistics, 10, 0)

    assert statistics.windows("TOPIC_PUT_NUMS", "T") is None
    assert statistics.windows("TOPIC_PUT_SIZE", "T") is None


def test_a_young_items_rate_is_over_the_time_since_it_is_known() -> None:
    statistics = started()
    for seconds in range(10, 100, 10):
        put(statistics, seconds, 0)
    put(statistics, 100, 50)

    assert minute(statistics) == Window(50, 10_000)
    assert minute(statistics).tps == 5.0


def test_a_minute_forgets_what_is_older() -> None:
    statistics = started()
    put(statistics, 10, 600)
    put(statistics, 20, 60)
    for seconds in range(30, 70, 10):
        put(statistics, seconds, 0)
    assert minute(statistics) == Window(660, 60_000)
    put(statistics, 70, 0)
    assert minute(statistics) == Window(60, 60_000)
    assert minute(statistics).tps == 1.0


def test_hours_and_days_are_made_of_longer_parts() -> None:
    statistics = started()
    for seconds in range(10, 7_210, 10):
        put(statistics, seconds, 1)
    windows = statistics.windows("TOPIC_PUT_NUMS", "T")

    assert windows is not None
    assert (windows.hour.total, windows.day.total) == (360, 720)
    assert (windows.hour.tps, windows.day.tps) == (0.1, 0.1)


def test_the_number_of_items_is_bounded() -> None:
    statistics = started()
    many = {f"T{number}": 1 for number in range(ITEM_COUNT_MAX + 5)}
    statistics.sample(NOW_MS + 10_000, "C", many, {}, (0, 0))

    known = [topic for topic in many if statistics.windows("TOPIC_PUT_NUMS", topic)]
    assert len(known) == ITEM_COUNT_MAX


def test_a_clock_that_was_set_back_gives_no_negative_rate() -> None:
    statistics = started()
    put(statistics, 10, 5)
    statistics.sample(NOW_MS - 3_600_000, "C", {"T": 5}, {}, (0, 0))

    assert statistics.is_due(NOW_MS - 7_200_000)
    assert minute(statistics).tps >= 0


def test_totals_are_kept_at_midnight() -> None:
    evening = datetime.fromtimestamp(NOW_MS / 1000).replace(hour=23, minute=59, second=55)
    statistics = Statistics()

    def sample(at: datetime, totals: tuple[int, int]) -> None:
        statistics.sample(int(at.timestamp() * 1000), "C", {}, {}, totals)

    sample(evening, (10, 1))
    assert statistics.totals_at_midnight == ((0, 0), (0, 0))
    sample(evening + timedelta(seconds=10), (12, 2))
    assert statistics.totals_at_midnight == ((0, 0), (10, 1))
    sample(evening + timedelta(days=1), (30, 3))
    sample(evening + timedelta(days=1, seconds=10), (31, 3))
    assert statistics.totals_at_midnight == ((10, 1), (30, 3))


def asked(bench: Bench, name: str, key: str) -> Any:
    answer = bench.ask(315, {"statsName": name, "statsKey": key})
    return fastjson.loads(answer.body)["statsMinute"] if answer.code == 0 else answer.remark


def test_the_broker_counts_what_grew_and_what_online_groups_committed(bench: Bench) -> None:
    bench.heartbeat("G", {"T": 1})
    bench.store.queues["T", 0] = (0, 100)
    bench.broker.commit_offset("G", "T", 1, 40)
    bench.broker.tick(NOW_MS + 10_000)
    bench.queues.grown = {"T": 30}
    bench.figures.stored, bench.figures.handed_out = 30, 20
    bench.broker.commit_offset("G", "T", 0, 7)        # first: from 0 on
    bench.broker.commit_offset("G", "T", 1, 45)
    bench.broker.commit_offset("offline", "T", 0, 9)
    bench.broker.tick(NOW_MS + 20_000)

    assert asked(bench, "TOPIC_PUT_NUMS", "T") == {"sum": 30, "tps": 3.0}
    assert asked(bench, "BROKER_PUT_NUMS", "DefaultCluster") == {"sum": 30, "tps": 3.0}
    assert asked(bench, "BROKER_GET_NUMS", "DefaultCluster") == {"sum": 20, "tps": 2.0}
    assert asked(bench, "GROUP_GET_NUMS", "T@G")["sum"] == 40 + 7 + 5
    assert asked(bench, "GROUP_GET_NUMS", "T@offline") == (
        "The stats <GROUP_GET_NUMS> <T@offline> not exist")


def test_a_group_that_begins_late_or_goes_back_consumed_nothing_by_that(bench: Bench) -> None:
    bench.heartbeat("G", {"T": 1})
    bench.store.queues["T", 0] = (50, 100)
    bench.broker.commit_offset("G", "T", 0, 60)
    bench.broker.tick(NOW_MS + 10_000)
    bench.broker.commit_offset("G", "T", 0, 55)
    bench.broker.tick(NOW_MS + 20_000)

    assert asked(bench, "GROUP_GET_NUMS", "T@G") == "The stats <GROUP_GET_NUMS> <T@G> not exist"


def test_the_rate_of_a_group_is_in_its_progress(bench: Bench) -> None:
    bench.heartbeat("G", {"TBW102": 1})
    bench.broker.commit_offset("G", "TBW102", 0, 0)
    bench.broker.tick(NOW_MS + 10_000)
    bench.broker.commit_offset("G", "TBW102", 0, 20)
    bench.broker.tick(NOW_MS + 20_000)

    stats = fastjson.loads(bench.ask(208, {"consumerGroup": "G"}).body)
    assert stats["consumeTps"] == 2.0


def test_the_runtime_figures_tell_the_totals_of_now_and_of_midnight(bench: Bench) -> None:
    bench.figures.stored, bench.figures.handed_out = 7, 3
    table = fastjson.loads(bench.ask(28).body)["table"]

    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("7", "3")
    assert (table["msgPutTotalTodayMorning"], table["msgGetTotalYesterdayMorning"]) == ("0", "0")
