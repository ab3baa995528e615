"""
Messages by key or unique id (broker.md 10.1, remoting.md 4.3, store.md 4.4).

RocketMQ 4.9.8: QueryMessageProcessor, DefaultMessageStore.queryMessage. The index matches by hash
alone: other keys' messages may come along, and clients take out what they want.
"""
from __future__ import annotations

from collections.abc import Generator

from mqcore.broker.core import Core
from mqcore.broker.request import Answer, Fields, OutcomeJob, Request, answers
from mqcore.wire.codes import FRAME_LENGTH_MAX, RequestCode, ResponseCode

ROUNDS_MAX = 3                    # further back each time, while no record can be read
HEADER_BYTES_MAX = 1024           # of the answer; its records have to fit in the rest of a frame
RECORD_BYTES_A_TURN = 64 << 10
REMARK_NOTHING = "can not find message, maybe time range not correct"


@answers(RequestCode.QUERY_MESSAGE)
def query_message(core: Core, request: Request) -> OutcomeJob:
    """
    QUERY_MESSAGE (12): whole records, oldest first; 22 when there is none. Messages of other topics
    with the same hash are left out where an account may not read those.
    """
    fields = Fields.of(request.command)
    topic, key = fields.text("topic"), fields.text("key")
    begin_ms, end_ms = fields.i64("beginTimestamp"), fields.i64("endTimestamp")
    wanted = fields.i32("maxNum")
    store = core.settings.store
    if fields.boolean("_UNIQUE_KEY_QUERY"):
        wanted = store.query_unique_count_max
    wanted = min(wanted, store.query_count_max)
    last_time_ms = last_position = 0
    for _ in range(ROUNDS_MAX):
        found = yield from core.ports.store.find_key(topic, key, wanted, begin_ms, end_ms)
        if not found.positions:
            break
        last_time_ms, last_position = found.last_time_ms, found.last_position
        body = yield from _records(core, request, sorted(found.positions))
        if body:
            return Answer(ResponseCode.SUCCESS, ext=_header(last_time_ms, last_position), body=body)
        end_ms = found.oldest_ms
        if end_ms < begin_ms:
            break
    return Answer(
        ResponseCode.QUERY_NOT_FOUND, REMARK_NOTHING, _header(last_time_ms, last_position))


def _records(
    core: Core, request: Request, positions: list[int],
) -> Generator[None, None, bytes]:
    """The records that are still there, as many as one frame carries. With pauses."""
    room = FRAME_LENGTH_MAX - HEADER_BYTES_MAX
    records = []
    for position in positions:
        record = core.ports.store.record(position)
        if record is None or not core.access.sees(request, record):
            continue
        room -= len(record)
        if room < 0:
            break
        records.append(record)
        if len(record) >= RECORD_BYTES_A_TURN:
            yield
    return b"".join(records)


def _header(last_time_ms: int, last_position: int) -> dict[str, str | None]:
    return {
        "indexLastUpdateTimestamp": str(last_time_ms),
        "indexLastUpdatePhyoffset": str(last_position),
    }
