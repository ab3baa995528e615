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

Commands of the Java program run in the JVM of a desk (tests/interop/desk.py), except for consumers
of a broadcasting group, whose client ids and offset files are those of a process, and for what is
to be killed, which is started with `apart`.
"""
from __future__ import annotations

import itertools
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.desk import Desk, Task
from tests.interop.toolchain import require_client
from tests.support.stock import die_with_parent

CONSUME_TIMEOUT_S = 60
EXIT_TOO_FEW = 3
END_GRACE_S = 30            # beyond a consumer's own timeout: start-up and shutdown
PRODUCE_TIMEOUT_S = 90

Line = dict[str, Any]


@dataclass
class Run:
    """One started program."""

    name: str
    process: subprocess.Popen[bytes] | Task
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

    def __init__(self, folder: Path, desk: Desk) -> None:
        self._folder = folder
        self._desk = desk
        self._numbers = itertools.count(1)
        self._runs: list[Run] = []

    def produce(self, client: str, namesrv: str, topic: str, messages: list[Line],
                apart: bool = False, **options: object) -> Run:
        """
        Start sending `messages` (tests/interop/messages.py) to `topic`. apart: in a process that
        may be killed.
        """
        folder = self._new_folder(f"{client}-produce")
        file = folder / "messages.json"
        file.write_text(json.dumps(messages), encoding="utf-8")
        given = {"namesrv": namesrv, "topic": topic, "file": file, **options}
        return self._start(client, "produce", folder, given, PRODUCE_TIMEOUT_S, apart)

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
               limit_s: float, apart: bool = False) -> Run:
        prefix = list(require_client(client))
        if client == "java":
            prefix.insert(1, f"-Duser.home={folder}")      # its log files
        out = folder / "out.jsonl"
        arguments = [command, *_arguments({**options, "out": out})]
        log = folder / "output.txt"
        process: subprocess.Popen[bytes] | Task
        if client == "java" and not apart and not options.get("broadcast"):
            process = self._desk.start(arguments, log)
        else:
            process = self._process([*prefix, *arguments], folder, log)
        run = Run(f"{client} {command}", process, out, log, limit_s)
        self._runs.append(run)
        return run

    @staticmethod
    def _process(command: list[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "HOME": str(folder), "ROCKETMQ_GO_LOG_LEVEL": "error"}
        with log.open("wb") as sink:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink,
                stderr=subprocess.STDOUT, cwd=folder, env=environment,
                preexec_fn=die_with_parent,
            )


def _arguments(options: dict[str, Any]) -> list[str]:
    arguments = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        arguments.append("--" + name.replace("_", "-"))
        if value is not True:
            arguments.append(str(value))
    return arguments
