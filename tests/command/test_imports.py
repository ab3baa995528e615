"""Modules that commands load: few, so that the first word is on the screen within 150 ms."""
from __future__ import annotations

import subprocess
import sys

from tests.command.conftest import Cluster

# Sends, receives or serves: not for a command that asks brokers. statistics loads numbers of
# every kind.
NOT_FOR_QUESTIONS = ("mqcore.client.produce", "mqcore.client.consume", "mqcore.client.read.",
                     "mqcore.client.names", "mqcore.broker", "mqcore.net", "mqcore.spark",
                     "statistics", "tomllib")
QUESTIONS = ("topic ls", "group ls", "client ls", "dlq ls", "transaction ls", "cluster show",
             "namesrv show", "check lag", "top --once")
# click, asyncio and msgspec are what every command stands on
PROGRAM = """
import sys
import asyncio, click, msgspec
before = set(sys.modules)
from mqcore.admin.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0, end.code
print(*sorted(set(sys.modules) - before), file=sys.stderr)
"""


def loaded_by(*words: str) -> set[str]:
    """Modules that a fresh interpreter has loaded at the end of a command that must succeed."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_a_list_of_topics_loads_few_modules(ours: Cluster) -> None:
    loaded = loaded_by("topic", "ls", "-n", ours.namesrv)

    assert len(loaded) <= 115, sorted(loaded)
    assert sum(name.startswith("mqcore.") for name in loaded) <= 90


def test_a_question_loads_nothing_that_sends_receives_or_serves(ours: Cluster) -> None:
    program = "; ".join([
        "import sys, json", "from tests.support.command import mqcore",
        "ends = [(one, mqcore(*one.split(), '-n', sys.argv[1])) for one in sys.argv[2:]]",
        "print(json.dumps([(one, end.stderr) for one, end in ends if end.returncode]))",
        "print(*sys.modules)"])
    done = subprocess.run([sys.executable, "-c", program, ours.namesrv, *QUESTIONS],
                          capture_output=True, text=True, check=True)

    failed, modules = done.stdout.splitlines()
    assert failed == "[]"
    assert "mqcore.client.admin.asynchronous" in modules.split()
    assert [name for name in modules.split() if name.startswith(NOT_FOR_QUESTIONS)] == []

