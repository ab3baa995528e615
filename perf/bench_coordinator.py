"""The coordinator's rules in one process: what the requests cost that serving processes pass on."""
from __future__ import annotations

import itertools
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from mqcore.broker.request import Answer, Request, answer_frame
from mqcore.wire.command import decode, encode, request
from perf.heartbeats import INTERVAL_S, heartbeat_frame
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

GROUPS, MEMBERS = 1000, 10
LENGTH_SIZE = 4


def handle(bench: Bench, connection: int, frame: bytes, now_ms: int) -> None:
    """One frame's whole way through the rules: decoded, decided, the answer encoded."""
    command = decode(frame)
    asked = Request(connection, "10.0.0.1:4000", command, now_ms, body_size=len(command.body))
    outcome = bench.broker.handle(asked)
    assert isinstance(outcome, Answer)
    assert outcome.code == 0
    answer_frame(asked, outcome)


def bench_heartbeats_of_1000_groups_with_10_members(
    benchmark: BenchmarkFixture, tmp_path: Path
) -> None:
    """All 10,000 once, as they come in each interval of 30 s."""
    bench = make_bench(settings_in(tmp_path))
    frames = [
        (number + 1,
         heartbeat_frame(f"group-{number // MEMBERS}", f"client-{number}")[LENGTH_SIZE:])
        for number in range(GROUPS * MEMBERS)]
    times = itertools.count(NOW_MS, int(INTERVAL_S * 1000))

    def beat() -> None:
        now_ms = next(times)
        for connection, frame in frames:
            handle(bench, connection, frame, now_ms)
        bench.connections.sent.clear()
        bench.broker.tick(now_ms)

    beat()                                  # the first ones join
    benchmark.pedantic(beat, rounds=5)
    if benchmark.stats is not None:
        seconds = benchmark.stats.stats.median
        benchmark.extra_info["us_each"] = round(seconds / len(frames) * 1e6, 1)
        benchmark.extra_info["percent_of_a_core"] = round(seconds / INTERVAL_S * 100, 2)


def bench_commits_of_offsets(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """UPDATE_CONSUMER_OFFSET for 1000 queues."""
    bench = make_bench(settings_in(tmp_path))
    offsets = itertools.count()

    def commit() -> None:
        offset = next(offsets)
        for number in range(1000):
            handle(bench, 1, encode(request(15, {
                "consumerGroup": f"group-{number // 8}", "topic": "orders",
                "queueId": str(number % 8), "commitOffset": str(offset)}))[LENGTH_SIZE:], NOW_MS)

    benchmark.pedantic(commit, rounds=5)
