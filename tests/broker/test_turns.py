"""No request holds the coordinator for longer because a table is large (docs/architecture.md)."""
from __future__ import annotations

import gc
import json
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from mqcore.broker.request import Answer, Request, answer_parts
from mqcore.broker.requests.client import DIGEST_BYTES_A_TURN, _digest
from mqcore.broker.saving import Saving
from mqcore.broker.tables import config_file
from mqcore.turns import finished
from mqcore.wire import fastjson, json_strict
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, decode
from mqcore.wire.json_cut import past_space
from mqcore.wire.topics import TopicConfig
from mqcore.workers.coordinator.collector import Collector
from tests.attacks import coordinator_hogs as hogs
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in
from tests.support.units import units

PAIRS = 100_000
CONFIGS = 10_000
QUEUES = 10_000
UNITS_MAX = 4.0
FRAME_BYTES = (16 << 20) - 1_000
CHANGING = (Code.DELETE_SUBSCRIPTIONGROUP, Code.DELETE_TOPIC_IN_BROKER, Code.CLEAN_UNUSED_TOPIC)
# of the whole broker: the same work whatever topic and group is named, and half of all of it
NAMELESS = (Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_TOPIC_CONFIG,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)


collector: Collector


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Offsets of one group of many topics, of one topic by many groups; many topics and groups."""
    bench = make_bench(settings_in(tmp_path_factory.mktemp("full") / "store"))
    core = bench.broker.core
    for number in range(PAIRS):
        core.offsets.commit("one-group", f"T-{number}", 0, 5)
        core.offsets.commit(f"G-{number}", "one-topic", 0, 5)
    for number in range(CONFIGS):
        core.topics.update(TopicConfig(f"T-{number}", 1, 1, 6), NOW_MS)
        core.groups.find_or_create(f"G-{number}", NOW_MS)
    core.topics.update(TopicConfig("one-topic", 4, 4, 6), NOW_MS)
    core.groups.find_or_create("one-group", NOW_MS)
    core.topics.persist()
    core.groups.persist()
    with collecting():
        yield bench


@contextmanager
def collecting() -> Iterator[None]:
    """With the coordinator's collector."""
    global collector
    before = gc.get_threshold()
    gc.collect()
    collector = Collector()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def in_units(seconds: float) -> float:
    return units(seconds, UNITS_MAX)


def longest_turn(
    bench: Bench, code: int, fields: dict[str, str | None], body: bytes | None = None,
) -> float:
    """CPU seconds of a request's longest stretch between two pauses."""
    command = Command(code, version=409, opaque=7, ext=dict(fields),
                      body=hogs.bodies(code) if body is None else body)
    del body
    request = Request(1, "10.0.0.1:4000", command, NOW_MS)
    began = time.thread_time()
    outcome = bench.broker.begin(request)
    longest = time.thread_time() - began
    del request, command
    return max(longest, longest_of(outcome)) if isinstance(outcome, Generator) else longest


def longest_of(job: Iterator[object]) -> float:
    """The same of a job."""
    longest = 0.0
    while True:
        began = time.thread_time()
        try:
            next(job)
        except StopIteration:
            return max(longest, time.thread_time() - began)
        longest = max(longest, time.thread_time() - began)
        began = time.thread_time()
        collector.look()
        longest = max(longest, time.thread_time() - began)


@pytest.mark.slow
@pytest.mark.parametrize("names", [
    {"topic": "one-topic", "group": "one-group"}, {"topic": "T-1", "group": "G-1"},
    {"topic": "", "group": "one-group"},
], ids=["the largest", "small ones", "all of a group"])
def test_no_request_takes_long_turns_over_the_largest_tables(
    full: Bench, names: dict[str, str]
) -> None:
    fields = {**hogs.FIELDS, "topic": names["topic"], **dict.fromkeys(
        ("group", "consumerGroup", "producerGroup", "srcGroup"), names["group"])}
    left_out = CHANGING if names["topic"] == "one-topic" else (*CHANGING, *NAMELESS)
    taken = {Code(code).name: in_units(longest_turn(full, code, fields))
             for code in hogs.CODES if code not in left_out}
    assert taken.keys() == {Code(code).name for code in hogs.CODES if code not in left_out}
    assert len(taken) > 40
    assert {name: most for name, most in taken.items() if most > UNITS_MAX} == {}


@pytest.mark.parametrize(("line", "count"), [
    (b"brokerPermission=4\n", 1), (b"brokerPermission=6\n", 1), (b"a\\\n", 20_000),
    (b"brokerPermission=6\n", 3_000),
    (b"a\\\n", 5_000_000),
], ids=["no writes", "writes again", "one long line", "many lines", "as long as a frame"])
def test_neither_do_changes_of_settings(full: Bench, line: bytes, count: int) -> None:
    taken = longest_turn(full, Code.UPDATE_BROKER_CONFIG, {}, line * count)
    assert in_units(taken) <= UNITS_MAX


def test_tables_are_written_beside_the_requests(
    full: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Iterator[None]] = []
    ends = []

    class Beside:
        def run(self, work: Iterator[None], done: Callable[[OSError | None], None]) -> None:
            steps.append(work)
            ends.append(done)

    core = full.broker.core
    full.connections.sent.clear()
    monkeypatch.setattr(core, "saving", Saving(Beside()))
    fields: dict[str, str | None] = {
        "topic": "T-new", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG"}
    group = json.dumps({"groupName": "G-new"}).encode()
    taken = [longest_turn(full, Code.UPDATE_AND_CREATE_TOPIC, fields),
             longest_turn(full, Code.UPDATE_AND_CREATE_TOPIC, {**fields, "topic": "T-other"}),
             longest_turn(full, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)]
    assert len(steps) == 1                 # the second topic and the group wait for the first
    assert full.connections.sent == []
    done = 0
    while done < len(steps):
        taken.append(longest_of(steps[done]))
        began = time.thread_time()
        ends[done](None)
        taken.append(time.thread_time() - began)
        full.registrar.finish()
        done += 1
    assert done == 3
    assert [command.code for _, command in full.connections.sent] == [0, 0, 0]
    full.connections.sent.clear()
    assert in_units(max(taken)) <= UNITS_MAX
    stored = config_file.load(core.settings.config_dir / "topics.json")
    assert stored is not None
    assert {"T-new", "T-other", "T-9999"} <= stored["topicConfigTable"].keys()


class InThread:
    """Files are written in another thread, as in a broker (ports.Background)."""

    def run(self, steps: Iterator[None], done: Callable[[OSError | None], None]) -> None:
        writing = Thread(target=lambda: deque(steps, maxlen=0))
        writing.start()
        writing.join()
        done(None)


def test_neither_do_those_that_remove_much(
        full: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full.broker.core, "saving", Saving(InThread()))
    fields = {**hogs.FIELDS, "groupName": "one-group", "topic": "one-topic"}
    taken = {code.name: in_units(longest_turn(full, code, fields)) for code in CHANGING}
    assert {name: most for name, most in taken.items() if most > UNITS_MAX} == {}
    assert full.broker.core.offsets.topics_of("one-group") == []


def test_no_request_leaves_garbage_in_circles(bench: Bench) -> None:
    """Nobody looks at old objects for long: what is left in circles there would stay."""
    fields = {**hogs.FIELDS, "topic": "TBW102"}
    for code in hogs.CODES:                    # what is made once, by the first
        longest_turn(bench, code, fields)
    gc.collect()
    left = {}
    for code in hogs.CODES:
        for body in (None, beat(2, "A", 2_000), b"{" + b'"a":[[]],' * 20_000 + b"x}"):
            longest_turn(bench, code, fields, body)
            found = gc.collect()
            if found:
                left[Code(code).name] = found
    assert left == {}


def beat(version: int, prefix: str, topics: int, **subscription: str) -> bytes:
    return json.dumps({"clientID": "hog", "consumerDataSet": [{
        "groupName": "hog", "subscriptionDataSet": [
            {"topic": f"{prefix}{number}", "subString": "*", "subVersion": version, **subscription}
            for number in range(topics)]}]}).encode()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(settings_in(tmp_path / "store", "processes.subscription_count_max=200000"))
    with collecting():
        yield made


def turns_of(bench: Bench, requests: list[tuple[Code, bytes]]) -> list[float]:
    """In units, each after the one before."""
    taken = []
    for code, body in requests:
        assert len(body) <= FRAME_BYTES
        taken.append(in_units(longest_turn(bench, code, {}, body)))
    bench.connections.sent.clear()
    return taken


@pytest.mark.slow
def test_neither_do_the_largest_heartbeats(bench: Bench) -> None:
    wide = {"unknown": "x" * 150}
    taken = turns_of(bench, [
        (Code.HEART_BEAT, beat(1, "A", 65_000, **wide)),
        (Code.HEART_BEAT, beat(2, "B", 65_000, **wide)), (Code.HEART_BEAT, beat(2, "B", 65_000))])
    assert len(bench.tables.subscriptions) == 65_000
    taken.append(in_units(longest_of(bench.broker.leaving(1))))
    assert bench.tables.subscriptions == {}
    long_texts = beat(3, "C", 100, subString="x" * 130_000)
    taken += turns_of(bench, [(Code.HEART_BEAT, long_texts)])
    assert max(taken) <= UNITS_MAX, taken


@pytest.mark.slow
def test_neither_do_heartbeats_of_very_many_groups(bench: Bench) -> None:
    body = json.dumps({"clientID": "hog", "consumerDataSet": [
        {"groupName": f"hog-{group}", "subscriptionDataSet": [
            {"topic": f"T-{number}", "subString": "*", "subVersion": 1} for number in range(16)]}
        for group in range(4_000)]}).encode()
    taken = turns_of(bench, [(Code.HEART_BEAT, body)])
    assert len(bench.tables.subscriptions) == 64_000
    taken.append(in_units(longest_of(bench.broker.leaving(1))))
    assert bench.tables.subscriptions == {}
    assert max(taken) <= UNITS_MAX, taken


HEAD, TAIL = b'{"clientID":"hog","consumerDataSet":[],"x":', b"}"
ROOM = FRAME_BYTES - len(HEAD) - len(TAIL)


# made when they are tested: in every process of a run they would be 200 MB that a fork copies
BODIES: dict[str, Callable[[], bytes]] = {
    "lists": lambda: b"[" + b"[]," * 900_000 + b"[]]",
    "numbers": lambda: b"[" + b"1.12345," * 1_900_000 + b"1]",
    "keys": lambda: b"{" + b",".join(b'"%d":{}' % number for number in range(900_000)) + b"}",
    "unsound at its end": lambda: b"[" + b"{}," * 900_000 + b"nonsense]",
    "bare keys": lambda: b"{" + b"1:[]," * 900_000 + b"1:[]}",
    "a string": lambda: b'"' + b"x" * (ROOM - 2) + b'"',
    "escapes": lambda: b'"' + b"\\u00e9" * (ROOM // 6 - 1) + b'"',
    "commas in a string": lambda: b'["' + b"," * (ROOM - 4) + b'"]',
    "spaces": lambda: b"[" + b" " * (ROOM - 2) + b"]",
    "depth": lambda: b"[" * 4_000_000 + b"]" * 4_000_000,
    "commas": lambda: b"[" + b"," * (ROOM - 2) + b"]",
    "long strings": lambda: (
        b"[" + b",".join(b'"%s"' % (b"z" * 1_000_000) for _ in range(16)) + b"]"),
    "a string deep within": lambda: (
        b'{"a":' * 60 + b'"' + b"y" * (ROOM - 500) + b'"' + b"}" * 60),
}


@pytest.mark.slow
@pytest.mark.parametrize("inner", BODIES.values(), ids=BODIES)
def test_neither_do_bodies_as_long_as_a_frame(
    bench: Bench, inner: Callable[[], bytes],
) -> None:
    taken = turns_of(bench, [(Code.HEART_BEAT, HEAD + inner() + TAIL)])
    assert max(taken) <= UNITS_MAX, taken


def test_the_bytes_of_a_long_body_are_looked_at_in_parts() -> None:
    body = bytes(FRAME_BYTES)
    assert len(list(_digest(body))) == FRAME_BYTES // DIGEST_BYTES_A_TURN
    assert finished(_digest(body)) != finished(_digest(body[:-1] + b"x"))


def test_blanks_behind_a_body_are_not_all_looked_at() -> None:
    most = json_strict.SCALAR_SIZE_MAX
    assert past_space(b" " * (4 * most), 5, most) == 5 + most
    blanks = b" " * (most - 1)
    assert finished(fastjson.loads_in_turns(blanks + b"[]" + blanks)) == []
    for text in (blanks + b" []", b"[]" + blanks + b" "):
        with pytest.raises(fastjson.JsonError, match="blanks of more than 1048576 bytes"):
            finished(fastjson.loads_in_turns(text))


@pytest.mark.slow
def test_neither_do_the_largest_locks(bench: Bench) -> None:
    body = json.dumps({"consumerGroup": "g", "clientId": "hog", "mqSet": [
        {"topic": f"t-{number}", "brokerName": "b", "queueId": number}
        for number in range(65_000)]}).encode()
    taken = turns_of(bench, [
        (code, body) for code in (Code.LOCK_BATCH_MQ, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ)])
    assert max(taken) <= UNITS_MAX, taken


def test_neither_do_the_largest_filters(bench: Bench, tmp_path: Path) -> None:
    taken = turns_of(bench, [(Code.HEART_BEAT, beat(
        1, "T", 1_200, expressionType="SQL92", subString="a = '" + "y" * 12_000 + "'"))])
    assert len(bench.tables.shown) == 1_200
    filters = bench.broker.core.filters
    writing = longest_of(filters.begin())      # beside the requests, and so is what follows
    raw = (tmp_path / "store" / "config" / "consumerFilter.json").read_bytes()
    began = time.thread_time()
    config_file.save_bytes(tmp_path / "alone", b"".join([raw[:1_000], raw[1_000:]]))
    taken.append(in_units(writing - (time.thread_time() - began)))
    taken.append(in_units(longest_of(bench.broker.leaving(1))))
    taken.append(in_units(longest_of(filters.clean(NOW_MS))))
    assert all(data.dead for data in filters.all())
    assert max(taken) <= UNITS_MAX, taken


def test_a_group_has_all_that_a_large_heartbeat_says_from_one_moment_on(bench: Bench) -> None:
    bench.heartbeat("hog", {f"A{number}": 1 for number in range(200)})
    command = Command(Code.HEART_BEAT, version=409, opaque=7, body=beat(2, "B", 1_000))
    outcome = bench.broker.begin(Request(1, "10.0.0.1:4000", command, NOW_MS))
    assert isinstance(outcome, Generator)
    group = bench.broker.core.clients.consumers["hog"]
    seen = {(len(group.subscriptions), "B0" in group.subscriptions) for _ in outcome}
    assert seen == {(200, False), (1_000, True)}


@pytest.mark.slow
@pytest.mark.parametrize("code", [
    Code.GET_TOPIC_STATS_INFO, Code.GET_CONSUME_STATS, Code.QUERY_CONSUME_TIME_SPAN])
def test_a_long_answer_is_neither_joined_nor_let_go_in_one_turn(tmp_path: Path, code: Code) -> None:
    """The frame has the parts that were written; what they were made of is gone before the end."""
    bench = make_bench(settings_in(tmp_path))
    bench.broker.core.topics.update(TopicConfig("wide", QUEUES, QUEUES), NOW_MS)
    command = Command(code, version=409, opaque=7, ext={
        "topic": "wide", "group": "readers", "consumerGroup": "readers"})
    request = Request(1, "10.0.0.1:4000", command, NOW_MS)
    job = bench.broker.begin(request)
    assert isinstance(job, Generator)
    answer = finished(job)

    assert isinstance(answer, Answer)
    assert max(map(len, answer.parts)) < 2 * fastjson.PART_SIZE < sum(map(len, answer.parts))
    parts = answer_parts(request, answer)
    assert parts is not None
    assert all(part is other for part, other in zip(parts[1:], answer.parts, strict=True))
    body = fastjson.loads(decode(b"".join(parts)[4:]).body)
    assert max(len(rows) for rows in body.values() if isinstance(rows, dict | list)) == QUEUES


def test_what_is_built_for_a_text_is_let_go_with_pauses() -> None:
    rows = {f"row-{number}": {"value": number} for number in range(20_000)}
    value = {"rows": rows}
    text = b"".join(finished(fastjson.parts_in_turns(value, built=True)))

    assert (value, rows) == ({}, {})
    assert len(fastjson.loads(text)["rows"]) == 20_000
