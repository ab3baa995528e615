"""Lists of a broker with 10,000 topics of 4 queues and 2,000 groups, in processor time."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.mqcore_process import MQCORE, mqcore_up

TOPICS, QUEUES, GROUPS = 10_000, 4, 2_000
EACH = TOPICS // GROUPS                       # topics of a group

# Lists, the rows that they have at least, and the processor time that they may take: how many
# times what Python takes to load click, asyncio and msgspec (50 ms on a machine where a list is to
# take 300 ms). They take about half; one request for each topic or group takes ten times as much.
LISTS = (
    ("topic ls -q", TOPICS, 8), ("topic ls --json", TOPICS, 9), ("topic ls --groups", TOPICS, 10),
    ("group ls -q", GROUPS, 9), ("check lag", GROUPS, 9), ("top --once -q --rows 2000", GROUPS, 16),
    ("client ls", 1, 8), ("dlq ls", 1, 4), ("cluster show", 1, 4), ("offset show G-0001", EACH, 4),
    ("topic show T-00001", QUEUES, 4), ("group show G-0001", EACH, 4),
)


def processor_s(command: list[str], output: Callable[[bytes], None] = lambda _: None) -> float:
    """The seconds of a processor that a program takes, the shorter of two runs."""
    taken = []
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            output(running.stdout.read())
            _, status, usage = os.wait4(running.pid, 0)
            running.returncode = os.waitstatus_to_exitcode(status)
        assert running.returncode == 0, command
        taken.append(usage.ru_utime + usage.ru_stime)
    return min(taken)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of such a broker; its tables are files that the broker reads."""
    folder = tmp_path_factory.mktemp("many")
    config = folder / "store" / "config"
    config.mkdir(parents=True)
    topics = [f"T-{number:05}" for number in range(TOPICS)]
    groups = [f"G-{number:04}" for number in range(GROUPS)]
    version = {"counter": 1, "timestamp": 1}
    write(config / "topics.json", {"dataVersion": version, "topicConfigTable": {
        name: {"topicName": name, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
        for name in topics}})
    write(config / "subscriptionGroup.json", {"dataVersion": version, "subscriptionGroupTable": {
        name: {"groupName": name} for name in groups}})
    write(config / "consumerOffset.json", {"offsetTable": {
        f"{topics[number]}@{groups[number // EACH]}": dict.fromkeys(map(str, range(QUEUES)), 0)
        for number in range(TOPICS)}})
    with mqcore_up(folder) as broker:
        yield broker.namesrv_addr


def write(file: Path, document: object) -> None:
    file.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.slow
def test_lists_of_many_take_little_of_a_processor(many: str) -> None:
    start = processor_s([sys.executable, "-c", "import click, asyncio, msgspec"])
    slow, short = {}, {}
    for words, rows, limit in LISTS:
        lines: list[int] = []
        taken = processor_s([*MQCORE, *words.split(), "-n", many],
                            lambda text, lines=lines: lines.append(text.count(b"\n")))
        if taken > limit * start:
            slow[words] = round(taken / start, 1)
        if min(lines) < rows:
            short[words] = min(lines)
    assert (slow, short) == ({}, {})
