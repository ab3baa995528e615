"""
Many consumers in one process of a client library, driven line by line.

    members = Members("java", folder, cluster.namesrv_addr)
    members.push("a", topic, group, orderly=True)
    members.wait_for(topic, {"key-1", "key-2"}, member="a")

Each command is a JSON object with `do`; each answer a JSON object with `answer` or `error`. What
the consumers were handed goes to a file of JSON lines, with the member's name, the number of the
listener's call, and whether that call accepted it. Messages are told apart by their keys.

Both programs know: push, pull, stop, release, poll, take. The Java one has more: create-topic,
send, flow, end-flow, reset, held, subscribe, suspend, resume, expire, queues, update, assign, seek,
seek-to-begin, seek-to-end, offset-at, committed, commit, pause.
"""
from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.interop.ask import ask
from tests.interop.toolchain import require_client
from tests.support.stock import die_with_parent, end_input
from tests.support.waiting import wait_until

ANSWER_TIMEOUT_S = 60
END_TIMEOUT_S = 20
FIRST = "CONSUME_FROM_FIRST_OFFSET"
LAST = "CONSUME_FROM_LAST_OFFSET"
TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
QUEUES = 4

Line = dict[str, Any]
Place = tuple[int, int]             # queue id, offset


def queued(keys: Iterable[str], queue: int | None = None, tags: str | None = None) -> list[Line]:
    """Messages for Members.send: to one queue, or to QUEUES queues in turn."""
    return [{"key": key, "tags": tags, "queue": number % QUEUES if queue is None else queue}
            for number, key in enumerate(keys)]


def keys_of(lines: Iterable[Line]) -> list[str]:
    """The keys of messages, in their order."""
    return [str(line["keys"]) for line in lines]


def places_of(lines: Iterable[Line]) -> list[Place]:
    """Where messages are, in their order."""
    return [(line["queueId"], line["offset"]) for line in lines]


def first_commit(broker_addr: str, group: str, topic: str) -> None:
    """
    Commit 0 for queue 0, before a test that looks at offsets committed at one moment: the stock
    broker may lose all but one of a group's first ones for a topic.
    """
    answer = ask(broker_addr, 15, {
        "consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "0"})
    assert answer.code == 0, answer.remark


class Members:
    """One process with consumers of one client library."""

    def __init__(
        self, client: str, folder: Path, namesrv_addr: str, jvm_options: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True)
        self.client = client
        self._out = folder / "deliveries.jsonl"
        self._read_to = 0
        self._lines: list[Line] = []
        self._errors = folder / "errors.txt"
        command = list(require_client(client))
        if client == "java":
            command[1:1] = [f"-Duser.home={folder}", *jvm_options]
        environment = {**os.environ, "HOME": str(folder), "ROCKETMQ_GO_LOG_LEVEL": "error"}
        with self._errors.open("wb") as sink:
            self._process = subprocess.Popen(
                [*command, "members", "--namesrv", namesrv_addr, "--out", str(self._out)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, cwd=folder,
                env=environment, preexec_fn=die_with_parent,
            )

    def ask(self, do: str, member: str = "", **fields: object) -> Any:
        """Have one command executed; its answer. AssertionError when it fails."""
        assert self._process.stdin is not None
        command = {"do": do, "member": member, **fields}
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert "error" not in answer, f"{command}: {answer['error']}\n{self.tail()}"
        return answer.get("answer")

    def create(self, topic: str, queues: int = QUEUES) -> None:
        """Make a topic (code 17)."""
        self.ask("create-topic", topic=topic, queues=queues)

    def send(self, topic: str, messages: list[Line]) -> list[Line]:
        """Send messages made by `queued` one after the other; key, queueId and offset of each."""
        return list(self.ask("send", topic=topic, messages=messages))

    def push(self, member: str, topic: str, group: str, **options: object) -> None:
        """
        Start a push consumer. Options, with their defaults below: expression, from, timestamp
        (yyyyMMddHHmmss), orderly, broadcast, batch, maxReconsume; fails: how often each key is
        rejected, -1 for ever; delayLevel of rejections; dawdle: ms that each call takes; hangsOn:
        the key whose first delivery does not return before `release`; routes and heartbeats: how
        often the Java client asks for and sends them, in ms; consumeTimeout and lockInterval of the
        Go client, in ms.
        """
        self.ask("push", member, **{
            "topic": topic, "group": group, "expression": "*", "from": FIRST, "batch": 1,
            "maxReconsume": -1, "routes": 1_000, "heartbeats": 30_000, **options})

    def pull(self, member: str, topic: str, group: str, **options: object) -> None:
        """
        Start a pull consumer: Java's lite one (options autoCommit, batch, expression; queues: ids
        to assign instead of subscribing), with `old` its DefaultMQPullConsumer; Go's own.
        """
        self.ask("pull", member, **{
            "topic": topic, "group": group, "expression": "*", "from": FIRST, "batch": 10,
            "maxReconsume": -1, "autoCommit": True, **options})

    def deliveries(self, topic: str, member: str | None = None) -> list[Line]:
        """What push consumers were handed so far, in its order."""
        with self._out.open("rb") as file:
            file.seek(self._read_to)
            whole = file.read()
        whole = whole[:whole.rfind(b"\n") + 1]
        self._read_to += len(whole)
        self._lines += [json.loads(line) for line in whole.splitlines()]
        return [line for line in self._lines
                if line["topic"] == topic and member in (None, line["member"])]

    def wait_for(
        self, topic: str, keys: Iterable[str], member: str | None = None, timeout_s: float = 30,
    ) -> list[Line]:
        """The deliveries, once they have all `keys`."""
        wanted = set(keys)

        def missing() -> set[str]:
            return wanted - set(keys_of(self.deliveries(topic, member)))

        with contextlib.suppress(AssertionError):
            wait_until(lambda: not missing(), "deliveries", timeout_s)
        assert not missing(), f"{topic} to {member or 'all'}: no {sorted(missing())}"
        return self.deliveries(topic, member)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the process: the end of its input ends it."""
        if self._process.poll() is None:
            end_input(self._process, END_TIMEOUT_S)

    def tail(self) -> str:
        """The end of what it complained of."""
        return self._errors.read_text(errors="replace")[-2_000:]

    def _answer(self) -> Line:
        stream = self._process.stdout
        assert stream is not None
        while True:
            ready, _, _ = select.select([stream], [], [], ANSWER_TIMEOUT_S)
            assert ready, f"{self.client} members do not answer\n{self.tail()}"
            line = stream.readline()
            assert line, f"{self.client} members ended\n{self.tail()}"
            if line.startswith((b'{"answer"', b'{"error"', b"{}")):
                return dict(json.loads(line))
