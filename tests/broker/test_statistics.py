"""Windows over what was put and got, and where the counts come from (broker.md 11)."""
from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from mqcore.broker.ports import LastPull, PullAdvance, QueueGrowth
from mqcore.broker.tables.statistics import ITEM_COUNT_MAX, Count, Statistics, Window
from mqcore.wire import fastjson
from tests.broker.fakes import NOW_MS, Bench

SECOND_MS = 1000


def started() -> Statistics:
    statistics = Statistics()
    statistics.sample(NOW_MS, "C", {}, (0, 0))
    return statistics


def put(statistics: Statistics, seconds: int, count: int, calls: int = 0) -> None:
    """`count` messages in `calls` requests until `seconds` after the start."""
    counts = {("TOPIC_PUT_NUMS", "T"): Count(count, calls)}
    statistics.sample(NOW_MS + seconds * SECOND_MS, "C", counts, (0, 0))


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


def test_an_average_is_over_the_calls_of_the_same_window() -> None:
    statistics = started()
    put(statistics, 10, 64, calls=2)
    put(statistics, 20, 6, calls=2)
    assert minute(statistics).per_call == 17.5
    for seconds in range(30, 80, 10):
        put(statistics, seconds, 0)
    assert minute(statistics).per_call == 3.0
    put(statistics, 80, 0)
    assert minute(statistics).per_call == 0.0


def test_what_was_noted_between_two_samples_is_in_the_second() -> None:
    statistics = started()
    statistics.note("SNDBCK_PUT_NUMS", "T@G")
    statistics.note("SNDBCK_PUT_NUMS", "T@G")
    put(statistics, 10, 0)
    statistics.note("SNDBCK_PUT_NUMS", "T@G")
    put(statistics, 20, 0)
    put(statistics, 30, 0)

    assert minute(statistics, "T@G", "SNDBCK_PUT_NUMS") == Window(3, 30_000, 3)


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
    many = {("TOPIC_PUT_NUMS", f"T{number}"): Count(1, 1) for number in range(ITEM_COUNT_MAX + 5)}
    statistics.sample(NOW_MS + 10_000, "C", many, (0, 0))

    known = [item for item in many if statistics.windows(*item)]
    assert len(known) == ITEM_COUNT_MAX


def test_a_clock_that_was_set_back_gives_no_negative_rate() -> None:
    statistics = started()
    put(statistics, 10, 5)
    put(statistics, -3_600, 5)

    assert statistics.is_due(NOW_MS - 7_200_000)
    assert minute(statistics).tps >= 0


def test_totals_are_kept_at_midnight() -> None:
    evening = datetime.fromtimestamp(NOW_MS / 1000).replace(hour=23, minute=59, second=55)
    statistics = Statistics()

    def sample(at: datetime, totals: tuple[int, int]) -> None:
        statistics.sample(int(at.timestamp() * 1000), "C", {}, totals)

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


def pulled(group: str, messages: int, *, pulls: int = 1, queue_id: int = 0) -> PullAdvance:
    return PullAdvance("TBW102", queue_id, group, pulls, messages, messages * 100, took_ms=6)


def test_the_broker_counts_what_came_into_queues_and_what_pulls_handed_out(bench: Bench) -> None:
    bench.broker.tick(NOW_MS + 10_000)
    bench.queues.grown = [QueueGrowth("T", 0, 20, 2_000, 2), QueueGrowth("T", 1, 10, 1_000, 4)]
    bench.figures.stored, bench.figures.handed_out = 30, 20
    bench.pulls.pulled = [pulled("G", 12, pulls=3), pulled("G", 8, queue_id=1)]
    bench.broker.tick(NOW_MS + 20_000)

    assert asked(bench, "TOPIC_PUT_NUMS", "T") == {"avgpt": 5.0, "sum": 30, "tps": 3.0}
    assert asked(bench, "TOPIC_PUT_SIZE", "T") == {"avgpt": 500.0, "sum": 3_000, "tps": 300.0}
    assert asked(bench, "BROKER_PUT_NUMS", "DefaultCluster") == {
        "avgpt": 0.0, "sum": 30, "tps": 3.0}
    assert asked(bench, "BROKER_GET_NUMS", "DefaultCluster") == {
        "avgpt": 0.0, "sum": 20, "tps": 2.0}
    assert asked(bench, "GROUP_GET_NUMS", "TBW102@G") == {"avgpt": 5.0, "sum": 20, "tps": 2.0}
    assert asked(bench, "GROUP_GET_SIZE", "TBW102@G") == {
        "avgpt": 500.0, "sum": 2_000, "tps": 200.0}
    assert asked(bench, "GROUP_GET_LATENCY", "0@TBW102@G") == {"avgpt": 2.0, "sum": 6, "tps": 0.6}
    assert asked(bench, "GROUP_GET_LATENCY", "1@TBW102@G") == {"avgpt": 6.0, "sum": 6, "tps": 0.6}


def test_what_was_there_before_the_first_sample_is_not_counted(bench: Bench) -> None:
    bench.pulls.pulled = [pulled("G", 5)]
    bench.broker.tick(NOW_MS + 10_000)
    bench.broker.tick(NOW_MS + 20_000)
    assert asked(bench, "GROUP_GET_NUMS", "TBW102@G")["sum"] == 5

    assert asked(bench, "GROUP_GET_NUMS", "TBW102@H") == (
        "The stats <GROUP_GET_NUMS> <TBW102@H> not exist")


def test_the_delay_topic_is_counted_by_queue_in_both_directions(bench: Bench) -> None:
    bench.figures.delays = {1: 4, 2: 7}
    bench.broker.tick(NOW_MS + 10_000)
    bench.queues.grown = [QueueGrowth("SCHEDULE_TOPIC_XXXX", 1, 3, 450, 3)]
    bench.figures.delays = {1: 4, 2: 9}
    bench.broker.tick(NOW_MS + 20_000)

    key = "SCHEDULE_TOPIC_XXXX@1"
    assert asked(bench, "QUEUE_PUT_NUMS", key)["sum"] == 3
    assert asked(bench, "QUEUE_PUT_SIZE", key) == {"avgpt": 150.0, "sum": 450, "tps": 45.0}
    assert asked(bench, "QUEUE_GET_NUMS", f"{key}@SCHEDULE_CONSUMER")["sum"] == 2
    assert asked(bench, "GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER")["sum"] == 2
    assert "not exist" in asked(bench, "QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER")


def test_how_far_behind_the_newest_pull_was_is_told_as_it_is(bench: Bench) -> None:
    bench.pulls.newest = [LastPull("T", 3, "G", behind_bytes=70_000, behind_ms=900, at_ms=NOW_MS)]

    assert asked(bench, "GROUP_GET_FALL_SIZE", "3@T@G")["sum"] == 70_000
    assert asked(bench, "GROUP_GET_FALL_TIME", "3@T@G")["sum"] == 900
    assert asked(bench, "GROUP_GET_FALL_TIME", "2@T@G") == (
        "The stats <GROUP_GET_FALL_TIME> <2@T@G> not exist")


def test_the_rate_of_a_group_is_in_its_progress(bench: Bench) -> None:
    bench.heartbeat("G", {"TBW102": 1})
    bench.broker.commit_offset("G", "TBW102", 0, 20)
    bench.broker.tick(NOW_MS + 10_000)
    bench.pulls.pulled = [pulled("G", 20)]
    bench.broker.tick(NOW_MS + 20_000)

    stats = fastjson.loads(bench.ask(208, {"consumerGroup": "G"}).body)
    assert stats["consumeTps"] == 2.0


def test_the_runtime_figures_tell_the_totals_of_now_and_of_midnight(bench: Bench) -> None:
    bench.figures.stored, bench.figures.handed_out = 7, 3
    table = fastjson.loads(bench.ask(28).body)["table"]

    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("7", "3")
    assert (table["msgPutTotalTodayMorning"], table["msgGetTotalYesterdayMorning"]) == ("0", "0")


def test_a_topic_is_known_right_behind_its_first_message(bench: Bench) -> None:
    bench.broker.tick(NOW_MS + 10_000)
    nothing = {"avgpt": 0.0, "sum": 0, "tps": 0.0}
    assert asked(bench, "TOPIC_PUT_NUMS", "T") == "The stats <TOPIC_PUT_NUMS> <T> not exist"
    bench.queues.grown = [QueueGrowth("T", 0, 1, 100, 1)]
    bench.pulls.pulled = [pulled("G", 2)]
    assert asked(bench, "TOPIC_PUT_NUMS", "T") == nothing
    assert asked(bench, "GROUP_GET_SIZE", "TBW102@G") == nothing
    assert asked(bench, "TOPIC_PUT_NUMS", "U") == "The stats <TOPIC_PUT_NUMS> <U> not exist"
    bench.queues.grown = [QueueGrowth("T", 0, 3, 100, 1)]
    bench.broker.tick(NOW_MS + 20_000)
    assert asked(bench, "TOPIC_PUT_NUMS", "T") == {"avgpt": 2.0, "sum": 4, "tps": 0.4}
    assert asked(bench, "GROUP_GET_NUMS", "TBW102@G")["sum"] == 2
    bench.broker.tick(NOW_MS + 30_000)
    assert asked(bench, "TOPIC_PUT_NUMS", "T")["sum"] == 4
