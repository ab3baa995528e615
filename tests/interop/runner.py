"""
Starts the client programs and collects what they saw.

All programs have one interface:

    produce --namesrv A --topic T --file messages.json --out results.jsonl [--group G]
    consume --namesrv A --topic T[,T...] --group G --out seen.jsonl --count N --timeout S
            [--expression TAGS | --sql TEXT] [--orderly] [--reject-once] [--broadcast]
            [--properties NAMES] [--linger-ms MS] [--max-reconsume N]

`produce` ends with 0 when every message was acknowledged. `consume` ends with 0 when N messages
were accepted, with 3 when fewer came in S seconds; it then shuts its client down, which commits
the offsets. The Java consumer changes its subscription to `--then-sql TEXT` after `--then-at N`
messages and prints `changed`. The Java program has more: --reject-always; create-topic, query,
request, read-store, pull-queue.
"""
from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.toolchain import require_client

CONSUME_TIMEOUT_S = 60
EXIT_TOO_FEW = 3
END_GRACE_S = 30            # beyond a consumer's own timeout: start-up and shutdown
PRODUCE_TIMEOUT_S = 90
PR_SET_PDEATHSIG = 1

Line = dict[str, Any]


@dataclass
class Run:
    """One started program."""

    name: str
    process: subprocess.Popen[bytes]
    out: Path
    log: Path
    limit_s: float
    lines: list[Line] = field(default_factory=list)

    def finish(self) -> list[Line]:
        """Wait for its end and return the lines it wrote; AssertionError unless it ended with 0."""
        code = self.end()
        assert code == 0, f"{self.name} ended with {code}: {len(self.lines)} lines\n{self.tail()}"
        return self.lines

    def end(self) -> int:
        """Wait for its end, read its lines, return its exit code; one that hangs is killed."""
        try:
            code = self.process.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.read_lines()
        return code

    def read_lines(self) -> list[Line]:
        """The lines that it has written so far."""
        if self.out.exists():
            text = self.out.read_text(encoding="utf-8")
            self.lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        return self.lines

    def tail(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        """End it if it still runs: the last line of a failed test's clean-up."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Programs:
    """Starts programs below one folder and ends what is left of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._runs: list[Run] = []

    def produce(self, client: str, namesrv: str, topic: str, messages: list[Line],
                **options: object) -> Run:
        """Start sending `messages` (tests/interop/messages.py) to `topic`."""
        folder = self._new_folder(f"{client}-produce")
        file = folder / "messages.json"
        file.write_text(json.dumps(messages), encoding="utf-8")
        given = {"namesrv": namesrv, "topic": topic, "file": file, **options}
        return self._start(client, "produce", folder, given, PRODUCE_TIMEOUT_S)

    def consume(self, client: str, namesrv: str, topic: str, group: str, count: int,
                timeout_s: int = CONSUME_TIMEOUT_S, **options: object) -> Run:
        """Start a push consumer that ends after `count` accepted messages or `timeout_s`."""
        given = {"namesrv": namesrv, "topic": topic, "group": group, "count": count,
                 "timeout": timeout_s, **options}
        folder = self._new_folder(f"{client}-consume")
        return self._start(client, "consume", folder, given, timeout_s + END_GRACE_S)

    def accounts(self, client: str, told: object, **options: object) -> list[Line]:
        """Let accounts do what they are told (clients/java, Accounts); a line for each deed."""
        folder = self._new_folder(f"{client}-accounts")
        file = folder / "accounts.json"
        file.write_text(json.dumps(told), encoding="utf-8")
        given = {"file": file, **options}
        return self._start(client, "accounts", folder, given, PRODUCE_TIMEOUT_S).finish()

    def java(self, command: str, **options: object) -> list[Line]:
        """Run another command of the Java program to its end; returns the lines that it wrote."""
        return self.start_java(command, **options).finish()

    def start_java(self, command: str, **options: object) -> Run:
        """Start another command of the Java program."""
        folder = self._new_folder(f"java-{command}")
        return self._start("java", command, folder, options, PRODUCE_TIMEOUT_S)

    def stop(self) -> None:
        for run in self._runs:
            run.stop()

    def _new_folder(self, name: str) -> Path:
        folder = self._folder / f"{next(self._numbers):03d}-{name}"
        folder.mkdir(parents=True)
        return folder

    def _start(self, client: str, command: str, folder: Path, options: dict[str, Any],
               limit_s: float) -> Run:
        prefix = list(require_client(client))
        if client == "java":
            prefix.insert(1, f"-Duser.home={folder}")      # its log files
        out = folder / "out.jsonl"
        arguments = [command, *_arguments({**options, "out": out})]
        log = folder / "output.txt"
        environment = {**os.environ, "HOME": str(folder), "ROCKETMQ_GO_LOG_LEVEL": "error"}
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*prefix, *arguments], stdin=subprocess.DEVNULL, stdout=sink,
                stderr=subprocess.STDOUT, cwd=folder, env=environment,
                preexec_fn=die_with_parent,
            )
        run = Run(f"{client} {command}", process, out, log, limit_s)
        self._runs.append(run)
        return run


def die_with_parent() -> None:
    """For preexec_fn: a test run that is killed leaves no program behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _arguments(options: dict[str, Any]) -> list[str]:
    arguments = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        arguments.append("--" + name.replace("_", "-"))
        if value is not True:
            arguments.append(str(value))
    return arguments
