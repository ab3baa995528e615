"""A consumer of POP over remoting, request by request."""
from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from mqcore.wire.command import Command, encode, request
from mqcore.wire.records import decode_records
from tests.wire_live.peer import Peer

POP, ACK, PEEK, CHANGE, NOTIFICATION, POLLING_INFO, BATCH_ACK = (
    200050, 200051, 200052, 200053, 200054, 200055, 200151)


@dataclass(frozen=True)
class Popped:
    """A message with the handle that stock's clients make for it."""

    topic: str
    queue_id: int
    offset: int
    body: bytes
    reconsume_times: int
    handle: str


def infos(text: str) -> dict[int, list[int]]:
    """startOffsetInfo or msgOffsetInfo: numbers by queue."""
    found = {}
    for part in filter(None, text.split(";")):
        kind, queue, numbers = part.split(" ")
        assert kind == "0"
        found[int(queue)] = [int(number) for number in numbers.split(",")]
    return found


def messages(answer: Command, broker: str = "mqcore-a") -> list[Popped]:
    ext = answer.ext or {}
    starts, offsets = infos(ext["startOffsetInfo"] or ""), infos(ext["msgOffsetInfo"] or "")
    records = decode_records(answer.body)
    for queue, numbers in offsets.items():
        assert numbers == sorted(one.queue_offset for one in records if one.queue_id == queue)
    return [Popped(one.topic, one.queue_id, one.queue_offset, one.body, one.reconsume_times,
                   f"{starts[one.queue_id][0]} {ext['popTime']} {ext['invisibleTime']} "
                   f"{ext['reviveQid']} 0 {broker} {one.queue_id} {one.queue_offset}")
            for one in records]


class PopPeer(Peer):
    """Of one group and topic."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        super().__init__(address)
        self.group, self.topic = group, topic

    def pop(self, **fields: Any) -> Command:
        return self.answer_to(self.send_pop(**fields))

    def send_pop(self, **fields: Any) -> int:
        """The opaque of the request."""
        command = request(POP, {
            "consumerGroup": self.group, "topic": self.topic, "queueId": "-1", "maxMsgNums": "32",
            "invisibleTime": "60000", "pollTime": "0", "bornTime": str(int(time.time() * 1000)),
            "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
            **{name: str(value) for name, value in fields.items()}})
        self.send(encode(command))
        return command.opaque

    def taken(self, **fields: Any) -> list[Popped]:
        """Messages; none when there are none."""
        answer = self.pop(**fields)
        if answer.code == 210:
            return []
        assert answer.code == 0, answer.remark
        return messages(answer)

    def ack(self, one: Popped, **fields: Any) -> Command:
        return self.ask(ACK, {**self._of(one), **fields})

    def change(self, one: Popped, invisible_ms: int, **fields: Any) -> Command:
        return self.ask(CHANGE, {**self._of(one), "invisibleTime": str(invisible_ms), **fields})

    def _of(self, one: Popped) -> dict[str, str]:
        return {"consumerGroup": self.group, "topic": self.topic, "queueId": str(one.queue_id),
                "offset": str(one.offset), "extraInfo": one.handle}
