"""What it costs a serving process to know whose a request is: read, checked, and may it."""
from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from mqcore.bench.templates import send_template
from mqcore.client.core.signature import sign
from mqcore.net.remoting.access import AccessProbe
from mqcore.wire.command import Codec, decode, encode
from perf.acl import ACCOUNT, RULES
from tests.acl import requests

COUNT = 1_000


@pytest.mark.parametrize("signed", [False, True], ids=["refused unsigned", "signed"])
@pytest.mark.parametrize("codec", Codec, ids=["json", "binary"])
def bench_judge_1000_sends_128B(
    benchmark: BenchmarkFixture, codec: Codec, signed: bool, tmp_path: Path,
) -> None:
    command = decode(send_template("TopicTest", 3, b"x" * 128, codec=codec).frame[4:])
    if signed:
        sign(command, ACCOUNT)
    rules = requests.read(tmp_path, RULES)
    with requests.shown(rules, "/mqcore-perf-access") as segment:
        probe = AccessProbe(segment)
        assert benchmark(probe.judge_many, encode(command)[4:], COUNT) == COUNT * signed
