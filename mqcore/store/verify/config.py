"""The JSON files below config/ of a store at rest (store.md 12): readable, and well shaped."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqcore.store import files
from mqcore.store.verify.report import DAMAGE, MEND, NOTE, Report
from mqcore.wire import fastjson

OFFSET_MAX = 2**63 - 1
COUNT_MAX = 2**31 - 1
# a table may be longer than any frame of a peer
WHOLE_FILE = {"size_max": COUNT_MAX, "count_max": COUNT_MAX}


class ShapeError(ValueError):
    """A value is not what the file's readers expect; the text names the member."""


def check(root: Path, report: Report) -> dict[str, dict[str, Any]]:
    """Check config/*.json; returns the decoded objects by file name. Adds to the report."""
    decoded: dict[str, dict[str, Any]] = {}
    for name, shape in SHAPES.items():
        path = root / "config" / name
        value, trouble = _read(path)
        backup, backup_trouble = _read(path.with_name(f"{name}.bak"))
        place = f"config/{name}"
        if isinstance(value, dict):
            if backup_trouble:
                report.add(NOTE, f"{place}.bak", None,
                           f"{backup_trouble}; the file itself is sound")
        elif isinstance(backup, dict):
            report.add(MEND, place, None, f"{trouble or 'missing'}, expected a JSON object; the "
                                          f"copy {name}.bak is sound and will be read instead")
            value = backup
        elif trouble or backup_trouble:
            report.add(DAMAGE, place, None, f"{trouble or backup_trouble}, expected a JSON object "
                                            f"here or in {name}.bak")
        if not isinstance(value, dict):
            continue
        try:
            shape(value)
        except ShapeError as error:
            report.add(DAMAGE, place, None, str(error))
            continue
        decoded[name] = value
    return decoded


def check_offsets(decoded: dict[str, dict[str, Any]], ends: dict[tuple[str, int], int],
                  report: Report) -> None:
    """
    Offsets that lie behind their queue's end are worth a note: after a crash a group can be ahead.

    ends: the queues' maximum offsets by (topic, queue id).
    """
    ahead = []
    for key, queues in (decoded.get("consumerOffset.json", {}).get("offsetTable") or {}).items():
        topic = str(key).rpartition("@")[0]
        ahead += [f"{key} queue {queue}: {offset}, the queue ends at {ends[topic, int(queue)]}"
                  for queue, offset in queues.items()
                  if offset > ends.get((topic, int(queue)), OFFSET_MAX)]
    for text in ahead[:16]:
        report.add(NOTE, "config/consumerOffset.json", None, text)
    if len(ahead) > 16:
        report.add(NOTE, "config/consumerOffset.json", None, f"{len(ahead) - 16} more such offsets")


def topics_of(decoded: dict[str, dict[str, Any]]) -> set[str] | None:
    """The topics of topics.json, None: there is no such file."""
    if "topics.json" not in decoded:
        return None
    return {str(name) for name in decoded["topics.json"].get("topicConfigTable") or {}}


def _read(path: Path) -> tuple[Any, str]:
    """(the value, what is wrong with it or ""); (None, "") when missing or empty."""
    try:
        raw = files.read(path)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"cannot be read ({error.strerror})"
    if not raw.strip():
        return None, ""
    try:
        value = fastjson.loads(raw, **WHOLE_FILE)
    except fastjson.JsonError as error:
        return None, f"not JSON ({error})"
    return (value, "") if isinstance(value, dict) else (None, f"a {type(value).__name__}")


# -- shapes ----------------------------------------------------------------------------------------

def _table(value: dict[str, Any], name: str) -> dict[Any, Any]:
    table = value.get(name)
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise ShapeError(f"{name} is {table!r:.80}, expected an object")
    return table


def _member(table: dict[Any, Any], name: str, key: Any) -> dict[Any, Any]:
    member = table[key]
    if not isinstance(member, dict):
        raise ShapeError(f"{name}.{key} is {member!r:.80}, expected an object")
    return member


def _number(where: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ShapeError(f"{where} is {value!r:.80}, expected a whole number from {low} to {high}")


def _queue_id(where: str, key: Any) -> None:
    try:
        number = int(key)
    except (TypeError, ValueError):
        raise ShapeError(f"{where} has the member {key!r:.80}, expected a queue id") from None
    _number(f"{where}'s queue id", number, 0, COUNT_MAX)


def _topics(value: dict[str, Any]) -> None:
    table = _table(value, "topicConfigTable")
    for key in table:
        topic = _member(table, "topicConfigTable", key)
        for name, low, high in (("readQueueNums", 0, COUNT_MAX), ("writeQueueNums", 0, COUNT_MAX),
                                ("perm", 0, 15)):
            if name in topic:
                _number(f"topicConfigTable.{key}.{name}", topic[name], low, high)


def _groups(value: dict[str, Any]) -> None:
    table = _table(value, "subscriptionGroupTable")
    for key in table:
        group = _member(table, "subscriptionGroupTable", key)
        for name in ("retryMaxTimes", "retryQueueNums", "brokerId"):
            if name in group:
                _number(f"subscriptionGroupTable.{key}.{name}", group[name], -1, OFFSET_MAX)


def _consumer_offsets(value: dict[str, Any]) -> None:
    table = _table(value, "offsetTable")
    for key in table:
        for queue, offset in _member(table, "offsetTable", key).items():
            _queue_id(f"offsetTable.{key}", queue)
            _number(f"offsetTable.{key}.{queue}", offset, -1, OFFSET_MAX)


def _delay_offsets(value: dict[str, Any]) -> None:
    for level, offset in _table(value, "offsetTable").items():
        _queue_id("offsetTable", level)
        _number(f"offsetTable.{level}", offset, 0, OFFSET_MAX)


def _filters(value: dict[str, Any]) -> None:
    table = _table(value, "filterDataByTopic")
    for key in table:
        _member(table, "filterDataByTopic", key)


SHAPES: dict[str, Callable[[dict[str, Any]], None]] = {
    "topics.json": _topics,
    "subscriptionGroup.json": _groups,
    "consumerOffset.json": _consumer_offsets,
    "lmqConsumerOffset.json": _consumer_offsets,
    "delayOffset.json": _delay_offsets,
    "consumerFilter.json": _filters,
}
