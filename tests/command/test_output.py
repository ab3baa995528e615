"""A standard output that takes nothing: one sentence and the exit status, of every command."""
from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.admin.cli import main
from tests.command.conftest import Cluster
from tests.store.golden import unpack
from tests.support.mqcore_process import MQCORE

# Commands that print, and the exit status of one that cannot. NS: a name server, STORE: a store at
# rest.
COMMANDS = [
    *((f"{words} -n NS", 1) for words in (
        "message send -t printed --body one", "topic ls", "topic ls --json", "topic ls --ndjson",
        "topic ls -q", "topic show printed", "group ls",
        "group create printing", "message find -t printed", "message consume -t printed -g P",
        "message tail -t printed --since '1h ago'", "offset export printing", "client ls", "dlq ls",
        "cluster show", "cluster export", "namesrv show", "check ready", "check disk")),
    *((words, 1) for words in ("--help", "topic --help", "--version", "context ls")),
    *((f"{words} STORE", 2) for words in (
        "verify", "verify --json", "store verify", "store stat", "store dump", "repair --dry-run")),
    ("spark --help", 2),
]


def ended(words: str, output: int, ours: Cluster, store: Path,
          monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
          ) -> tuple[int, str]:
    """The exit status of a command whose standard output is `output`, and what it complains of."""
    arguments = [{"NS": ours.namesrv, "STORE": str(store)}.get(one, one)
                 for one in shlex.split(words)]
    with open(output, "w", encoding="utf-8") as stream, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        patched.setattr(sys, "__stdout__", stream)
        with pytest.raises(SystemExit) as end:
            main(arguments)
    assert isinstance(end.value.code, int)
    return int(end.value.code), capsys.readouterr().err


def gone() -> int:
    """A pipe that nothing reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize(("opened", "said"), [
    (lambda: os.open("/dev/full", os.O_WRONLY),
     "Error: standard output: No space left on device\n"), (gone, ""),
], ids=["full", "gone"])
def test_a_command_that_cannot_print_says_so_and_ends_with_its_status(
    opened: Callable[[], int], said: str, ours: Cluster, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    store = unpack("basic", tmp_path)
    ours.run("topic", "rm", "printed", "--yes")
    ours.run("group", "rm", "printing", "--yes")
    # `consume` watches its pipe and ends by itself: tests/admin/test_consume_pipes.py
    wrong = {words: found for words, status in COMMANDS if (said or "consume" not in words) and (
        found := ended(words, opened(), ours, store, monkeypatch, capsys)) != (status, said)}
    assert wrong == {}


@pytest.mark.parametrize(("words", "redirected", "status", "said"), [
    ("topic --help", ">&-", 1, "Error: standard output: Bad file descriptor\n"),
    ("store stat STORE", ">&- <&-", 2, "Error: standard output: Bad file descriptor\n"),
    ("store stat STORE", "2>/dev/full", 0, ""),
    ("store stat none", "2>/dev/full >&-", 2, ""),
])
def test_closed_outputs_and_words_that_are_lost(
    tmp_path: Path, words: str, redirected: str, status: int, said: str
) -> None:
    command = shlex.join([*MQCORE, *words.split()]).replace("STORE", str(
        unpack("basic", tmp_path)))
    done = subprocess.run(["sh", "-c", f"{command} {redirected}"], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr) == (status, said)
