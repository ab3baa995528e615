"""
Tables that a slave takes over from its master: topics, groups, consumer offsets, delay offsets.

ha.md 4, remoting.md 4.6 (RocketMQ 4.9.8: SlaveSynchronize). An answer is read to its
end before anything of it is taken; one that cannot be read, or names what no table here can hold,
changes nothing. Topics and groups that the master has no more go, and so do offsets that a master
of ours has no more. A stock master never forgets any: of its offsets those go whose group or topic
is gone.

Beyond stock: an offset that was committed here, while the master was away, stays until the master
has it or a later one; the caller brings it there. And what counts as settled because the log says
so, deliveries of delayed messages and ends of transactions, is read apart and kept by the caller's
word: the log comes by another way, and what was settled behind its end is settled by nobody here.
"""
from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Container, Generator, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from mqcore.broker.core import Core
from mqcore.broker.requests.check_sender import GROUP as TRANSACTION_GROUP
from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_table import ConfigTable, TablesFull
from mqcore.broker.tables.groups import GroupConfig
from mqcore.broker.tables.offset_files import LIGHT_MEMBER, MEMBER, offset_of, queues_of
from mqcore.broker.tables.offsets import is_light
from mqcore.broker.tables.own_offsets import OwnOffset
from mqcore.broker.tables.topics import QUEUES_OF_A_TOPIC_MAX, stored_topic
from mqcore.layout import DELAY_LEVEL_MAX, GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX
from mqcore.store.paths import folder_name_trouble
from mqcore.wire import fastjson
from mqcore.wire.codes import SYSTEM_GROUP_PREFIX
from mqcore.wire.numbers import I32_MAX, I32_MIN, I64_MAX, I64_MIN, whole_number
from mqcore.wire.topics import DataVersion, TopicConfig

ROWS_A_TURN = 200
DELAY_MEMBERS = ("offsetTable", "logPosition", "delivered", "timer")
_SEPARATOR = "@"
_VERSION = re.compile("[0-9a-f]{8}-[0-9]{1,19}")
_log = logging.getLogger(__name__)

Entry = TypeVar("Entry", TopicConfig, GroupConfig)


class AnswerError(ValueError):
    """A master's answer cannot be used; the text says what is wrong with it."""


class TakenOffsets(NamedTuple):
    """
    left          what was committed here and is later than the master's: it lacks them
    transactions  how far the master has settled transactions: for `keep_transactions`
    """

    left: list[OwnOffset]
    transactions: list[OwnOffset]


def take_topics(core: Core, body: bytes) -> Generator[None, None, bool]:
    """The topics of an answer to 21; whether they were others. With pauses. Raises AnswerError."""
    return _take(core.topics, body, core.settings.processes.topic_count_max, _topic)


def take_groups(core: Core, body: bytes) -> Generator[None, None, bool]:
    """The groups of an answer to 201, likewise."""
    return _take(core.groups, body, core.settings.processes.group_count_max, _group)


def take_offsets(
    core: Core, body: bytes, *, is_ours: bool
) -> Generator[None, None, TakenOffsets]:
    """
    The consumer offsets of an answer to 43 over those here, but for those of transactions. is_ours:
    the master's. With pauses. Raises AnswerError.
    """
    document = yield from _object(body)
    table = yield from _entries(document.get(MEMBER, {}), _queues)
    light = yield from _entries(document.get(LIGHT_MEMBER) or {}, _light)
    transactions: list[OwnOffset] = []
    for number, (key, queues) in enumerate([*table.items(), *light.items()], 1):
        topic, _, group = key.partition(_SEPARATOR)
        if group == TRANSACTION_GROUP:
            transactions += [OwnOffset(group, topic, *one) for one in queues.items()]
            continue
        for queue_id, offset in queues.items():
            if core.own_offsets.is_ahead(group, topic, queue_id, offset):
                continue
            if not core.offsets.commit(group, topic, queue_id, offset):
                raise AnswerError(core.offsets.full)
        if number % ROWS_A_TURN == 0:
            yield
    left = yield from _left_over(core, {**table, **light})
    yield from (_remove_missing if is_ours else _remove_deleted)(core, {**table, **light})
    yield from fastjson.dismantled([document, table])          # tens of thousands of objects
    return TakenOffsets(left, transactions)


def _remove_missing(
    core: Core, table: Mapping[str, dict[int, int]]
) -> Generator[None, None, None]:
    """
    The offsets that this table of the master's lacks: a topic or group was deleted there, and may
    have been made again since. Those that were committed here stay.
    """
    rows = 0
    for topic in core.offsets.topics():
        for group in () if is_light(topic) else core.offsets.groups_of(topic):
            rows += 1
            if rows % ROWS_A_TURN == 0:
                yield
            if group.startswith(SYSTEM_GROUP_PREFIX):
                continue
            there = table.get(f"{topic}{_SEPARATOR}{group}", {})
            here = core.offsets.of_queues(group, topic)
            kept = {queue_id: offset for queue_id, offset in here.items()
                    if queue_id in there or core.own_offsets.is_ahead(group, topic, queue_id, -1)}
            if len(kept) < len(here):
                core.offsets.remove_pair(topic, group)
                for queue_id, offset in kept.items():
                    core.offsets.commit(group, topic, queue_id, offset)


def _remove_deleted(core: Core, table: Collection[str]) -> Generator[None, None, None]:
    """The offsets of groups that neither this table of the master's has nor that of its groups."""
    kept = {key.partition(_SEPARATOR)[2] for key in table}
    kept |= {commit.group for commit in core.own_offsets.all()}
    for number, group in enumerate(core.offsets.groups(), 1):
        if group not in kept and core.groups.get(group) is None and not group.startswith(
                SYSTEM_GROUP_PREFIX):
            while not core.offsets.remove_group(group, ROWS_A_TURN):
                yield
        if number % ROWS_A_TURN == 0:
            yield
    yield from _remove_of_deleted_topics(core, table)


def _remove_of_deleted_topics(
    core: Core, table: Container[str]
) -> Generator[None, None, None]:
    """Likewise of topics: a topic that is made again begins without them."""
    own = {f"{commit.topic}{_SEPARATOR}{commit.group}" for commit in core.own_offsets.all()}
    rows = 0
    for topic in core.offsets.topics():
        gone = core.topics.get(topic) is None and not is_light(topic)
        for group in core.offsets.groups_of(topic) if gone else ("",):
            key = f"{topic}{_SEPARATOR}{group}"
            if gone and key not in table and key not in own and group != TRANSACTION_GROUP:
                core.offsets.remove_pair(topic, group)
            rows += 1
            if rows % ROWS_A_TURN == 0:
                yield


def keep_transactions(core: Core, transactions: Iterable[OwnOffset]) -> None:
    """
    What `take_offsets` found of them: the log here has all that these offsets count. Raises
    AnswerError.
    """
    for group, topic, queue_id, offset in transactions:
        if not core.offsets.commit(group, topic, queue_id, offset):
            raise AnswerError(core.offsets.full)


def _left_over(
    core: Core, table: Mapping[str, dict[int, int]]
) -> Generator[None, None, list[OwnOffset]]:
    """Offsets committed here that the master lacks; those that it has are forgotten."""
    left = []
    for number, commit in enumerate(core.own_offsets.all(), 1):
        if number % ROWS_A_TURN == 0:
            yield
        there = table.get(f"{commit.topic}{_SEPARATOR}{commit.group}", {}).get(commit.queue_id, -1)
        if commit.offset > there:
            left.append(commit)
        else:
            core.own_offsets.remove(commit)
    return left


def read_delays(body: bytes, since: int) -> Generator[None, None, dict[str, Any]]:
    """
    How far the master has delivered each delay level, an answer to 45, for `keep_delays`. since:
    log position below which it counts every delivery, where the answer names none; with a later
    one than is true a message is delivered again, and none is lost. With pauses. Raises
    AnswerError.
    """
    document = yield from _object(body)
    position = document.get("logPosition")
    if position is not None and (
            not isinstance(position, int) or not -1 <= position <= I64_MAX):
        raise AnswerError(f"logPosition: {position!r:.40}, expected a position")
    timer = document.get("timer")
    return {
        **({} if timer is None else {"timer": _timer(timer)}),
        "offsetTable": dict(
            (yield from _entries(document.get("offsetTable", {}), _delay)).values()),
        "logPosition": since if position is None else position,
        "delivered": {
            str(level): offsets for level, offsets in (yield from _entries(
                document.get("delivered") or {}, _delivered)).values()}}


def begin_delays(core: Core) -> None:
    """
    Where nothing is known of deliveries yet, all of the log is to be asked by who leads: without
    the file it would deliver everything again. Raises ConfigFileError, OSError.
    """
    path = core.settings.config_dir / config_file.DELAY_FILE
    known = config_file.load(path)
    if known is None:
        config_file.save(path, {"offsetTable": {}, "logPosition": 0})
    elif "timer" in known and not _is_a_masters(known["timer"]):     # of a time as master
        del known["timer"]
        config_file.save(path, {**known, "logPosition": 0})
    path.with_name("timercheck").unlink(missing_ok=True)


def keep_delays(core: Core, value: dict[str, Any]) -> None:
    """
    What `read_delays` found into delayOffset.json, for who delivers when this broker is a master:
    the log here has all deliveries that it counts. Raises ConfigFileError, OSError.
    """
    path = core.settings.config_dir / config_file.DELAY_FILE
    known = config_file.load(path) or {}
    if {name: known.get(name) for name in value} != _as_read(value):
        kept = config_file.unknown_members(path, known, DELAY_MEMBERS)
        config_file.save(path, config_file.merged(value, kept))


def _timer(said: Any) -> dict[str, Any]:
    """How far messages with a time of delivery are delivered (timer TM5); no wheel is here."""
    found = {name: said.get(name) if isinstance(said, dict) else None
             for name in ("second", "queueOffset")}
    for name, value in found.items():
        if not isinstance(value, int) or not 0 <= value <= I64_MAX:
            raise AnswerError(f"timer.{name}: {value!r:.40}, expected a number from 0 on")
    return found


def _is_a_masters(timer: Any) -> bool:
    """Whether the words about the timer are of another broker, as `_timer` gives them."""
    return isinstance(timer, dict) and "boot" not in timer and timer.get("wheel") is None


def log_end_of(body: bytes) -> int:
    """Where a broker's log ends, by its runtime info, an answer to 28. Raises AnswerError."""
    try:
        return position_of(str(fastjson.loads(body)["table"]["commitLogMaxOffset"]))
    except (fastjson.JsonError, KeyError, TypeError) as error:
        raise AnswerError(f"its runtime info does not say where its log ends: {error!r:.80}"
                          ) from error


def position_of(text: str) -> int:
    """A log position in an answer. Raises AnswerError."""
    position = whole_number(text, 0)
    if position is None:
        raise AnswerError(f"its log ends at {text!r:.40}, expected a position")
    return position


def version_of(text: str | None) -> str:
    """
    A version of offsets in an answer, to be asked with; '': none. A master of ours says eight
    digits and a number. A longer text is a peer's own, which the broker's account would sign.
    """
    return text if text is not None and _VERSION.fullmatch(text) else ""


def _as_read(value: dict[str, Any]) -> Any:
    return fastjson.loads(fastjson.dumps(value))


def _take(
    table: ConfigTable[Entry], body: bytes, count_max: int,
    parse: Callable[[str, Any], Entry | None],
) -> Generator[None, None, bool]:
    document = yield from _object(body)
    try:
        version = DataVersion.from_json(document.get("dataVersion"))
    except ValueError as error:
        raise AnswerError(str(error)) from error
    if version == table.version:
        return False
    members = document.get(table.member)
    if not members:
        raise AnswerError(f"{table.member} is missing, or empty")
    found = {name: entry for name, entry in (yield from _entries(members, parse)).items()
             if entry is not None}
    if len(found) > count_max:
        raise AnswerError(f"{table.member} has {len(found)} entries: there is room for {count_max}")
    try:
        yield from table.follow(found, version)
    except TablesFull as error:
        raise AnswerError(str(error)) from error
    return True


def _object(body: bytes) -> Generator[None, None, dict[str, Any]]:
    try:
        document = yield from fastjson.loads_in_turns(body)
    except fastjson.JsonError as error:
        raise AnswerError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise AnswerError("expected an object")
    return document


Parsed = TypeVar("Parsed")


def _entries(
    table: Any, parse: Callable[[str, Any], Parsed]
) -> Generator[None, None, dict[str, Parsed]]:
    if not isinstance(table, dict):
        raise AnswerError(f"a table is {table!r:.40}, expected an object")
    found: dict[str, Parsed] = {}
    for number, (name, value) in enumerate(table.items(), 1):
        try:
            found[str(name)] = parse(str(name), value)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise AnswerError(f"entry {str(name)!r:.160}: {error}") from error
        if number % ROWS_A_TURN == 0:
            yield
    return found


def _topic(name: str, value: Any) -> TopicConfig | None:
    topic = stored_topic(name, value)
    for count in (topic.read_queue_count, topic.write_queue_count):
        if not 0 <= count <= QUEUES_OF_A_TOPIC_MAX:
            raise ValueError(f"{count} queues: expected 0 to {QUEUES_OF_A_TOPIC_MAX}")
    trouble = folder_name_trouble(name)
    if trouble is not None:
        _log.warning("the master's topic %.160r is not taken over: %s", name, trouble)
        return None
    return topic


def _group(name: str, value: Any) -> GroupConfig:
    group = GroupConfig.from_json(name, value)
    _within(group.retry_queue_count, I32_MIN, I32_MAX)
    _within(group.retry_times_max, I32_MIN, I32_MAX)
    _within(group.broker_id, I64_MIN, I64_MAX)
    _within(group.broker_id_when_slow, I64_MIN, I64_MAX)
    return group


def _within(number: int, low: int, high: int) -> None:
    if not low <= number <= high:
        raise ValueError(f"{number:.10e}: expected {low} to {high}")


def _queues(key: str, value: Any) -> dict[int, int]:
    topic, _, group = key.partition(_SEPARATOR)
    if len(topic.encode("utf-8", "replace")) > TOPIC_LENGTH_MAX or not (
            len(group.encode("utf-8", "replace")) <= GROUP_LENGTH_MAX):
        raise ValueError("topic or group is too long")
    queues = queues_of(key, value)
    for queue_id in queues:
        _within(queue_id, I32_MIN, I32_MAX)
    return queues


def _light(key: str, value: Any) -> dict[int, int]:
    return _queues(key, {0: offset_of(value)})


def _level(name: str) -> int:
    level = int(name)
    if not 1 <= level <= DELAY_LEVEL_MAX:
        raise ValueError(f"expected a level from 1 to {DELAY_LEVEL_MAX}")
    return level


def _delay(name: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, int) or not 0 <= value <= I64_MAX:
        raise ValueError("expected an offset")
    return _level(name), value


def _delivered(name: str, value: Any) -> tuple[int, list[int]]:
    if not isinstance(value, list):
        raise ValueError("expected a list of offsets")
    return _level(name), [offset for _, offset in map(partial(_delay, name), value)]
