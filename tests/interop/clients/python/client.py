"""
Drives the PyPI `rocketmq` package, that is the C++ client, for the interoperability tests.

`produce` and `consume` take the options of the programs in the other languages
(tests/interop/runner.py). Runs in an environment of its own, which has only that package.

The C interface hands bodies out as C strings: a body with a NUL byte arrives cut. It sends such
bodies whole, through a function that the package does not wrap.
"""
from __future__ import annotations

import argparse
import base64
import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from rocketmq.client import (
    Message,
    Producer,
    PushConsumer,
    RecvMessage,
    SendResult,
    SendStatus,
)
from rocketmq.exceptions import RocketMQException, ffi_check
from rocketmq.ffi import MessageModel, dll

SEND_TIMEOUT_MS = 10_000
CALLBACK_TIMEOUT_S = 20
EXIT_TOO_FEW = 3
ACCOUNT_LIMIT_S = 30

_set_body = dll.SetByteMessageBody
_set_body.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
_set_body.restype = ctypes.c_int


class Lines:
    """A file of JSON lines, flushed after each."""

    def __init__(self, path: str) -> None:
        self._file: TextIO = Path(path).open("w", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


# -- produce ---------------------------------------------------------------------------------------


def produce(options: argparse.Namespace) -> int:
    items = json.loads(Path(options.file).read_text(encoding="utf-8"))
    results = Lines(options.out)
    producer = Producer(options.group, timeout=SEND_TIMEOUT_MS)
    producer.set_namesrv_addr(options.namesrv)
    producer.start()
    try:
        for item in items:
            result = _send(producer, _message(options.topic, item), item)
            if result is None:
                continue
            mid = item["properties"]["mid"]
            if result.status != SendStatus.OK:
                raise RuntimeError(f"{mid}: {result}")
            results.write({"id": mid, "msgId": result.msg_id, "offset": result.offset})
    finally:
        producer.shutdown()
    return 0


def _send(producer: Producer, message: Message, item: dict[str, Any]) -> SendResult | None:
    mode = item["mode"]
    if mode == "sync" and item.get("shard") is not None:
        return producer.send_orderly(message, item["shard"])
    if mode == "sync":
        return producer.send_sync(message)
    if mode == "async":
        return _send_async(producer, message)
    if mode == "oneway":
        producer.send_oneway(message)
        return None
    raise ValueError(f"unknown mode: {mode}")


def _send_async(producer: Producer, message: Message) -> SendResult:
    answered = threading.Event()
    outcome: list[Any] = []

    def keep(result: Any) -> None:
        outcome.append(result)
        answered.set()

    producer.send_async(message, keep, keep)
    if not answered.wait(CALLBACK_TIMEOUT_S):
        raise TimeoutError(f"no callback within {CALLBACK_TIMEOUT_S} s")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _message(topic: str, item: dict[str, Any]) -> Message:
    message = Message(topic)
    body = base64.b64decode(item["body"])
    ffi_check(_set_body(message._as_parameter_, body, len(body)))
    if item.get("tags"):
        message.set_tags(item["tags"])
    if item.get("keys"):
        message.set_keys(item["keys"])
    for name, value in item["properties"].items():
        message.set_property(name, value)
    if item.get("delayLevel"):
        message.set_delay_time_level(item["delayLevel"])
    return message


# -- consume ---------------------------------------------------------------------------------------


class Receiver:
    """Writes every delivery and accepts it, or with `--reject-once` its second one."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._names = [name for name in options.properties.split(",") if name]
        self._rejects_once = options.reject_once
        self._rejected: set[str] = set()
        self._lines = Lines(options.out)
        self._missing = options.count
        self._changed = threading.Condition()

    def receive(self, message: RecvMessage) -> None:
        line = self._describe(message)
        mid = line["properties"].get("mid", "")
        with self._changed:
            accepted = not self._rejects_once or mid in self._rejected
            self._rejected.add(mid)
        line["accepted"] = accepted
        self._lines.write(line)
        if not accepted:
            raise Rejected(mid)
        with self._changed:
            self._missing -= 1
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._missing <= 0, timeout_s)

    def _describe(self, message: RecvMessage) -> dict[str, Any]:
        """The C interface cannot list properties, and "" is its word for a missing one."""
        properties = {name: _text(message.get_property(name)) for name in self._names}
        return {
            "topic": message.topic,
            "tags": _text(message.tags),
            "keys": _text(message.keys),
            "properties": {name: value for name, value in properties.items() if value},
            "body": base64.b64encode(message.body or b"").decode(),
            "queueId": message.queue_id,
            "offset": message.queue_offset,
            "msgId": message.id,
            "reconsumeTimes": message.reconsume_times,
            "storeSize": message.store_size,
            "seenAt": int(time.time() * 1000),
        }


class Rejected(Exception):
    """Raised to the client library: it asks the broker for the message again."""


def _text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def consume(options: argparse.Namespace) -> int:
    receiver = Receiver(options)
    model = MessageModel.BROADCASTING if options.broadcast else MessageModel.CLUSTERING
    consumer = PushConsumer(options.group, orderly=options.orderly, message_model=model)
    consumer.set_namesrv_addr(options.namesrv)
    for topic in options.topic.split(","):
        consumer.subscribe(topic, receiver.receive, options.expression)
    consumer.start()
    print("ready", flush=True)
    enough = receiver.wait(options.timeout)
    threading.Event().wait(options.linger_ms / 1000)
    consumer.shutdown()
    return 0 if enough else EXIT_TOO_FEW


# -- accounts --------------------------------------------------------------------------------------


def accounts(options: argparse.Namespace) -> int:
    """One account of --file, by its deeds; see Accounts.java. A line for each of them."""
    account = json.loads(Path(options.file).read_text(encoding="utf-8"))
    results = Lines(options.out)
    producer = Producer("accounts", timeout=SEND_TIMEOUT_MS)
    producer.set_namesrv_addr(options.namesrv)
    if "key" in account:
        producer.set_session_credentials(account["key"], account["secret"], "")
    producer.start()
    try:
        for deed in account["deeds"]:
            try:
                _do(producer, account, deed, options.namesrv)
                outcome = "ok"
            except (RocketMQException, TimeoutError) as error:
                outcome = str(error)
            results.write({"do": deed["do"], "outcome": outcome})
    finally:
        producer.shutdown()
    return 0


def _do(producer: Producer, account: dict[str, Any], deed: dict[str, Any], namesrv: str) -> None:
    if deed["do"] == "push":
        _push(account, deed, namesrv)
        return
    item = {"mode": deed["do"], "body": base64.b64encode(deed["body"].encode()).decode(),
            "keys": deed["body"], "properties": {}}
    if deed["do"] == "delayed":
        item |= {"mode": "sync", "delayLevel": 1}
    _send(producer, _message(deed["topic"], item), item)


def _push(account: dict[str, Any], deed: dict[str, Any], namesrv: str) -> None:
    came = threading.Event()
    consumer = PushConsumer(deed["group"])
    consumer.set_namesrv_addr(namesrv)
    consumer.set_session_credentials(account["key"], account["secret"], "")
    consumer.subscribe(deed["topic"], lambda message: came.set())
    consumer.start()
    try:
        if not came.wait(ACCOUNT_LIMIT_S):
            raise TimeoutError("no message")
    finally:
        consumer.shutdown()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["produce", "consume", "accounts"])
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic")
    parser.add_argument("--group", default="PG-cpp")
    parser.add_argument("--file")
    parser.add_argument("--out", required=True)
    parser.add_argument("--expression", default="*")
    parser.add_argument("--properties", default="mid")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--linger-ms", type=int, default=1000)
    parser.add_argument("--orderly", action="store_true")
    parser.add_argument("--reject-once", action="store_true")
    parser.add_argument("--broadcast", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = parse(sys.argv[1:])
    code = {"produce": produce, "consume": consume, "accounts": accounts}[given.command](given)
    sys.stdout.flush()
    # -- without the library's own end: it destroys mutexes that threads of it may still lock, and
    #    then aborts the process now and then (boost::lock_error)
    os._exit(code)
