"""One request to a broker or name server over a plain socket, for what no client program shows."""
from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import Command, decode, encode
from tests.support.waiting import wait_until

ASK_TIMEOUT_S = 5
POLL_INTERVAL_S = 0.1
CLIENT_VERSION = 409
STILL_S = 2.0                   # so long without a change: nothing more is on its way
STILL_S_MAX = 30.0


def ask(addr: str, code: int, ext: dict[str, str | None], body: bytes = b"") -> Command:
    """Send one request to `host:port` and return the response; OSError when it does not come."""
    host, port = addr.rsplit(":", 1)
    request = Command(code=code, language=0, version=CLIENT_VERSION, opaque=1, flag=0, remark=None,
                      ext=ext, body=body)
    with socket.create_connection((host, int(port)), timeout=ASK_TIMEOUT_S) as peer:
        peer.sendall(encode(request))
        stream = peer.makefile("rb")
        head = stream.read(4)
        if len(head) < 4:
            raise ConnectionError(f"{addr} closed the connection")
        return decode(stream.read(struct.unpack(">I", head)[0]))


def group_members(addr: str, group: str) -> list[str]:
    """The client ids of a consumer group as the broker at `addr` knows them (code 38)."""
    answer = ask(addr, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return json.loads(answer.body)["consumerIdList"] if answer.body else []


def committed_offset(addr: str, group: str, topic: str, queue_id: int) -> int | None:
    """The offset that a group has committed for a queue (code 14), or None."""
    answer = ask(addr, RequestCode.QUERY_CONSUMER_OFFSET, {
        "consumerGroup": group, "topic": topic, "queueId": str(queue_id)})
    return int((answer.ext or {})["offset"] or 0) if answer.code == 0 else None


def ends_of(lines: Iterable[dict[str, Any]]) -> dict[int, int]:
    """For each queue the offset behind its last message in `lines`."""
    found: dict[int, int] = {}
    for line in lines:
        found[line["queueId"]] = max(found.get(line["queueId"], 0), line["offset"] + 1)
    return found


def settled_offsets(
    addr: str, group: str, topic: str, queues: Iterable[int],
    wanted: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """
    The committed offsets of a group that has stopped, 0 where there is none.

    A client commits one-way on its way out, and a broker learns of it after the client has ended.
    So this returns when the offsets are at `wanted`, or have not changed for STILL_S.
    """
    known: dict[int, int] = {}
    since = 0.0

    def settled() -> bool:
        nonlocal known, since
        found = {queue: committed_offset(addr, group, topic, queue) or 0 for queue in queues}
        now = time.monotonic()
        if found != known:
            known, since = found, now
        reached = wanted and all(found.get(queue, 0) >= offset for queue, offset in wanted.items())
        return bool(reached) or now - since >= STILL_S

    wait_until(settled, f"offsets of {group} that stay as they are", STILL_S_MAX)
    return known


def stored_count(addr: str, topic: str, queues: Iterable[int]) -> int:
    """How many messages the queues of a topic have ever had (code 30)."""
    answers = [ask(addr, RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)})
               for queue in queues]
    return sum(int((answer.ext or {})["offset"] or 0) for answer in answers)


def client_offsets(addr: str, group: str, topic: str) -> dict[str, dict[int, int]]:
    """
    By member of a group, as its client says itself (code 307): the queues that it has, and up to
    where it is done with each. It counts a message after its listener has returned.
    """
    found: dict[str, dict[int, int]] = {}
    for member in group_members(addr, group):
        answer = ask(addr, RequestCode.GET_CONSUMER_RUNNING_INFO, {
            "consumerGroup": group, "clientId": member, "jstackEnable": "false"})
        pairs = re.findall(r"\{([^{}]*)\}\s*:\s*\{([^{}]*)\}", answer.body.decode())
        found[member] = {_number("queueId", queue): _number("commitOffset", state)
                         for queue, state in pairs if f'"topic":"{topic}"' in queue}
    return found


def _number(name: str, text: str) -> int:
    found = re.search(rf'"{name}":(-?\d+)', text)
    assert found is not None, text
    return int(found[1])


def has_route(namesrv_addr: str, topic: str) -> bool:
    """Whether a name server knows where `topic` is (code 105)."""
    return ask(namesrv_addr, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0


def send(addr: str, topic: str, body: bytes, properties: str = "") -> Command:
    """Send one message to queue 0 of `topic` with code 10; returns the response."""
    return ask(addr, RequestCode.SEND_MESSAGE, {
        "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1",
        "flag": "0", "properties": properties, "reconsumeTimes": "0", "unitMode": "false",
        "batch": "false",
    }, body)
