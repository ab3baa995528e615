"""mqadmin 4.9.8 in one JVM that takes command after command, and readers of its output."""
from __future__ import annotations

import json
import re
import select
import subprocess
from pathlib import Path
from typing import Any

from tests.interop.toolchain import require_client
from tests.support.stock import die_with_parent

COMMAND_LIMIT_MS = 15_000
ANSWER_TIMEOUT_S = 40
_LOGBACK = "<configuration><root level='OFF'/></configuration>\n"


class Mqadmin:
    """The JVM; also producers and consumers in it, as members for the commands to look at."""

    def __init__(self, folder: Path, namesrv_addr: str) -> None:
        command = list(require_client("java"))
        self.folder = folder
        self.namesrv_addr = namesrv_addr
        self.took_ms: dict[str, int] = {}
        conf = folder / "conf"
        conf.mkdir(parents=True)
        (conf / "logback_tools.xml").write_text(_LOGBACK)
        command[1:1] = [f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"]
        self._errors = (folder / "errors.txt").open("wb")
        self._process = subprocess.Popen(
            [*command, "mqadmin", "--namesrv", namesrv_addr], cwd=folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            preexec_fn=die_with_parent,
        )

    def run(self, command: str, *options: object, limit_ms: int = COMMAND_LIMIT_MS) -> str:
        """What a command prints. limit_ms: when one that has no end is interrupted."""
        words = ["mqadmin", limit_ms, command, *options, "-n", self.namesrv_addr]
        return self.ask(*words)

    def ask(self, *words: object) -> str:
        """One line to the JVM, and the text that it answers with."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(word) for word in words]).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer()
        name = str(words[2] if words[0] == "mqadmin" and len(words) > 2 else words[0])
        self.took_ms[name] = self.took_ms.get(name, 0) + int(answer["ms"])
        return str(answer["text"])

    def send(self, group: str, topic: str, queue_id: int, key: str, body: str) -> dict[str, Any]:
        """Send a message with tag TagA; returns its unique key, offset id and queue offset."""
        text = self.ask("send", group, topic, queue_id, key, body)
        assert text.startswith("{"), text
        return dict(json.loads(text))

    def stop(self) -> None:
        """End the JVM: the end of its input ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _answer(self) -> dict[str, Any]:
        """The next line that is an answer; clients of the JVM may print lines of their own."""
        stream = self._process.stdout
        assert stream is not None
        while True:
            ready, _, _ = select.select([stream], [], [], ANSWER_TIMEOUT_S)
            assert ready, f"mqadmin does not answer; see {self.folder / 'errors.txt'}"
            line = stream.readline()
            assert line, (self.folder / "errors.txt").read_text(errors="replace")[-2000:]
            if line.startswith(b'{"text"'):
                return dict(json.loads(line))


def rows(text: str, head: str) -> list[list[str]]:
    """The rows of a table below the line that begins with `head`, up to an empty line; words."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(head):
            break
    else:
        raise AssertionError(f"no line {head!r} in:\n{text}")
    found = []
    for line in lines:
        if not line.strip():
            break
        found.append(line.split())
    return found


def fields(text: str) -> dict[str, str]:
    """Lines of the form `name: value` or `name=value`."""
    pairs = (re.match(r"\s*([^:=]+?)\s*[:=]\s*(.*?)\s*$", line) for line in text.splitlines())
    return {pair[1]: pair[2] for pair in pairs if pair is not None}
