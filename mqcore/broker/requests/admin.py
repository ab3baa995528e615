"""
Whole tables for slaves and tools, one message by position, runtime figures.

broker.md 9.6, 10.2, remoting.md 4.4, 4.6, 5.5 (RocketMQ 4.9.8: AdminBrokerProcessor,
QueryMessageProcessor).
"""
from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mqcore.broker.core import Core
from mqcore.broker.request import (
    TEXT_A_TURN,
    Answer,
    Fields,
    OutcomeJob,
    Request,
    answers,
    json_answer,
    long_answer,
    refused,
)
from mqcore.broker.requests import statistics as statistics_requests
from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_table import ConfigTable
from mqcore.store.log.retention import used_percent
from mqcore.wire import fastjson
from mqcore.wire.codes import (
    KNOWN_VERSION,
    LOG_END,
    SCHEDULE_TOPIC,
    TABLE_VERSION,
    VERSION_4_9_8,
    VERSION_IS_KNOWN,
    RequestCode,
    ResponseCode,
    version_text,
)
from mqcore.wire.records import RecordError, decode_record

GIB = 1 << 30
# There are no thread pools here: a request is run when it is read, so that none waits in one. Tools
# print these next to the rates.
NOTHING_QUEUED = dict.fromkeys((
    "sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "queryThreadPoolQueueSize",
    "EndTransactionQueueSize", "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity",
    "queryThreadPoolQueueCapacity", "EndTransactionThreadPoolQueueCapacity",
    "dispatchMaxBuffer",                       # there is no buffer between log and dispatcher
), "0")


@answers(RequestCode.GET_ALL_TOPIC_CONFIG)
def all_topics(core: Core, request: Request) -> OutcomeJob | Answer:
    """GET_ALL_TOPIC_CONFIG (21)."""
    return _unless_known(core.topics, request, {})


@answers(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
def all_groups(core: Core, request: Request) -> OutcomeJob | Answer:
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""
    return _unless_known(core.groups, request, None)


def _unless_known(
    table: ConfigTable[Any], request: Request, ext: dict[str, str | None] | None
) -> OutcomeJob | Answer:
    """A whole table, but for a slave of ours that knows this version of it: it asks often."""
    known = Fields.of(request.command).ext.get(KNOWN_VERSION)
    if known is None:
        return json_answer(table.shown(), ext=ext)
    same = known == table.version.text
    said: dict[str, str | None] = {VERSION_IS_KNOWN: "true" if same else "false"}
    return Answer(ResponseCode.SUCCESS, ext=said) if same else json_answer(table.shown(), ext=said)


@answers(RequestCode.GET_ALL_CONSUMER_OFFSET)
def all_offsets(core: Core, request: Request) -> OutcomeJob:
    """
    GET_ALL_CONSUMER_OFFSET (43): ConsumerOffsetSerializeWrapper (remoting.md 5.4). A slave of ours
    says which version it has; of what changes while the text is made it asks again. It is told up
    to where the log has all that the text counts.
    """
    said: dict[str, str | None] | None = None
    known = Fields.of(request.command).ext.get(KNOWN_VERSION)
    if known is not None:
        version = core.offsets.version
        said = {VERSION_IS_KNOWN: "true" if known == version else "false", TABLE_VERSION: version}
        if known == version:
            return Answer(ResponseCode.SUCCESS, ext=said)
    text = fastjson.Parts()
    opening = b"{"
    for name, entries in core.offsets.sections().items():
        text.add(b"%s%s:{" % (opening, fastjson.quote(name).encode()))
        opening = b","
        rows: list[str] = []
        size = 0
        separator = b""
        for entry in entries:
            rows.append(entry.replace("\n\t\t", ""))     # of the file
            size += len(entry)
            if size >= TEXT_A_TURN:
                text.add(separator + ",".join(rows).encode())
                separator = b","
                rows.clear()
                size = 0
                yield
        if rows:
            text.add(separator + ",".join(rows).encode())
        text.add(b"}")
    text.add(b"}")
    if said is not None:
        said |= _log_end(core)
    return long_answer(text.done(), ext=said)


def _log_end(core: Core) -> dict[str, str | None]:
    """To be asked for when the body is made: what it counts lies below."""
    return {LOG_END: str(core.ports.store.log_range()[1])}


@answers(RequestCode.GET_ALL_DELAY_OFFSET)
def delay_offsets(core: Core, request: Request) -> Answer:
    """
    GET_ALL_DELAY_OFFSET (45): as the scheduler has them, else as its file has them. A slave of ours
    gets the file, which says from where on the log knows better, and where the log ends.
    """
    offsets = core.ports.figures.delay_offsets()
    ours = KNOWN_VERSION in Fields.of(request.command).ext
    if ours or offsets is None:
        stored = config_file.load(core.settings.config_dir / config_file.DELAY_FILE) or {}
        if ours and (stored.get("offsetTable") or stored.get("timer")):
            return Answer(ResponseCode.SUCCESS, ext=_log_end(core), body=fastjson.dumps(stored))
        offsets = offsets or {int(level): int(offset) for level, offset in (
            stored.get("offsetTable") or {}).items()}
    return Answer(ResponseCode.SUCCESS, ext=_log_end(core) if ours else None,
                  body=fastjson.dumps({"offsetTable": dict(offsets)}))


@answers(RequestCode.VIEW_MESSAGE_BY_ID)
def view_message(core: Core, request: Request) -> Answer:
    """VIEW_MESSAGE_BY_ID (33): the record at a commit log position, as it is stored."""
    position = Fields.of(request.command).i64("offset")
    record = core.ports.store.named_record(position)
    if record is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"there is no message at position {position}")
    denied = core.access.may_read(request, record)
    return denied or Answer(ResponseCode.SUCCESS, body=record)


@answers(RequestCode.GET_BROKER_RUNTIME_INFO)
def runtime_info(core: Core, request: Request) -> Answer:
    """
    GET_BROKER_RUNTIME_INFO (28): every key that stock answers, `brokerActive` and
    `getTransferredTps` of 5.x for its tools, and some of our own.
    """
    low, high = core.ports.store.log_range()
    table = {
        "brokerVersionDesc": version_text(VERSION_4_9_8),
        "brokerVersion": str(VERSION_4_9_8),
        "bootTimestamp": str(core.started_ms),
        "runtime": _duration(request.now_ms - core.started_ms),
        "startAcceptSendRequestTimeStamp": str(core.settings.broker.accept_sends_from_ms),
        "commitLogMinOffset": str(low),
        "commitLogMaxOffset": str(high),
        "earliestMessageTimeStamp": str(_earliest_ms(core, low)),
        **_disk(core.settings.store.path, core.settings.log_folders.writable),
        "brokerActive": "true",
        **NOTHING_QUEUED,
        **_delays(core),
        **statistics_requests.totals(core),
        **core.ports.figures.runtime(),
    }
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps({"table": table}))


@answers(RequestCode.GET_STANDING)
def standing(core: Core, request: Request) -> Answer:
    """GET_STANDING (32005): processes, positions of the log, latencies, as `mqcore status`."""
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps(core.ports.figures.standing()))


def _delays(core: Core) -> dict[str, str]:
    """For each delay level: the next message to be delivered, and how many there are."""
    offsets = core.ports.figures.delay_offsets() or {}
    ends = {level: core.ports.store.queue_range(SCHEDULE_TOPIC, level - 1) for level in offsets}
    return {
        f"scheduleMessageOffset_{level}": f"{offset},{(ends[level] or (0, 0))[1]}"
        for level, offset in offsets.items()
    }


def _earliest_ms(core: Core, position: int) -> int:
    """When the first message of the log was stored; -1 for an empty log."""
    record = core.ports.store.record(position)
    if record is None:
        return -1
    try:
        return decode_record(record).store_timestamp_ms
    except RecordError:
        return -1


def _disk(path: str, log_folders: Sequence[Path]) -> dict[str, str]:
    """
    How full the disks of the store are: fractions (-1.0: unknown), and the sizes for people. Of
    several log folders the one with the most room counts (store.md 6.6).
    """
    usage = shutil.disk_usage(path)
    logs = {str(folder): _ratio(folder) for folder in log_folders}
    return {
        "commitLogDiskRatio": min(logs.values(), key=float),
        **{f"commitLogDiskRatio_{folder}": ratio for folder, ratio in logs.items()},
        "consumeQueueDiskRatio": _ratio(Path(path) / "consumequeue"),
        "commitLogDirCapacity":
            f"Total : {usage.total / GIB:.1f} GiB, Free : {usage.free / GIB:.1f} GiB.",
    }


def _ratio(folder: Path) -> str:
    """As retention sees it: whole percents, rounded up; the root's disk before there are files."""
    percent = used_percent(folder if folder.is_dir() else folder.parent)
    return "-1.0" if percent < 0 else str(percent / 100)


def _duration(elapsed_ms: int) -> str:
    minutes, seconds = divmod(max(elapsed_ms, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
