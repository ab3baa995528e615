"""SQL92 filters: what one message costs, and what compiling an expression costs."""
from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from mqcore.filter.sql92_compiler import compile_program
from mqcore.filter.sql92_filter import Filter
from mqcore.wire.properties import encode_properties

ROUNDS = 100_000                    # messages in one native call
THREE = "price > 100 AND weight < 3.5 AND region = 'eu'"
PROPERTIES = encode_properties({
    "KEYS": "order-1", "UNIQ_KEY": "C0A80001" * 4, "TAGS": "TagA", "CLUSTER": "DefaultCluster",
    "price": "123", "weight": "2.75", "color": "blue", "region": "eu"}).encode()


@pytest.mark.parametrize(("expression", "passes"), [
    (THREE, True),
    ("price > 1000 AND weight < 3.5 AND region = 'eu'", False),
    ("TAGS IN ('TagC', 'TagB', 'TagA') AND price BETWEEN 100 AND 200", True),
    ("region = 'eu'", True),
], ids=["three_comparisons", "first_of_three_decides", "in_and_between", "one_comparison"])
def bench_filter_100k_messages_8_properties(
    benchmark: BenchmarkFixture, expression: str, passes: bool,
) -> None:
    wanted = Filter.compile(expression)
    assert benchmark(wanted.count_matches, PROPERTIES, ROUNDS) == ROUNDS * passes
    if benchmark.stats is not None:
        benchmark.extra_info["messages_per_second"] = round(ROUNDS / benchmark.stats["median"])


def bench_filter_from_python(benchmark: BenchmarkFixture) -> None:
    assert benchmark(Filter.compile(THREE).matches, PROPERTIES)


def bench_compile_three_comparisons(benchmark: BenchmarkFixture) -> None:
    assert len(benchmark(compile_program, THREE)) < 512


def bench_compile_cached(benchmark: BenchmarkFixture) -> None:
    assert benchmark(Filter.compile, THREE).expression == THREE
