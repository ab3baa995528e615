"""The load generator sends what real clients send, counts what it gets, and times it honestly."""
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from mqcore.bench.commands import bench_group
from mqcore.bench.control import BenchError, Target, find_target
from mqcore.bench.cpu import CpuMeter, cpu_seconds, process_tree
from mqcore.bench.frames import (
    OPAQUE_FIRST,
    number_in_response,
    parse_response,
    render_pull,
)
from mqcore.bench.generator import ProduceLoad
from mqcore.bench.histogram import LatencyHistogram
from mqcore.bench.load import (
    ConsumeOptions,
    EndToEndOptions,
    ProduceOptions,
    Span,
    consume,
    cut_slices,
    end_to_end,
    produce,
)
from mqcore.bench.templates import OPAQUE, pull_template, send_template
from mqcore.client import Credentials
from mqcore.client.core.signature import sign
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import Codec, Command, decode, encode, response
from mqcore.wire.properties import decode_properties
from tests.bench.fake_broker import Answer, FakeBroker, fake_broker, record

CODECS = [Codec.JSON, Codec.ROCKETMQ]
ACCOUNT = Credentials("the-bench", "its-secret-key")


def target(broker: FakeBroker, queues: int = 4) -> Target:
    return Target(broker.addr, "T", queues)


# -- histogram ------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2**41), min_size=1, max_size=300), st.sampled_from([1, 50, 90, 99]))
def test_a_percentile_is_at_most_one_slot_above_the_exact_one(
    values: list[int], percent: int
) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)

    rank = max(1, int(len(values) * percent / 100 + 0.5))
    exact = sorted(values)[rank - 1]

    assert exact <= histogram.percentile_ns(percent) <= exact * (1 + 1 / 64) + 1


def test_a_value_beyond_the_histogram_counts_in_its_last_slot() -> None:
    histogram = LatencyHistogram()
    histogram.record(2**60)

    assert histogram.summary()["count"] == 1
    assert histogram.summary()["max_us"] == 2**60 / 1000


# -- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("offset", [0, 9, 10, 7_777_777_777, 2**63 - 1])
def test_a_rendered_pull_is_the_template_with_another_offset(codec: Codec, offset: int) -> None:
    made = pull_template("topic", 3, group="G", batch=32, suspend_ms=15_000, codec=codec)
    plain, rendered = decode(made.frame[4:]), render_pull(made, offset, 17)

    pulled = decode(rendered[4:])

    assert len(rendered) == 4 + int.from_bytes(rendered[:4], "big")
    assert pulled.opaque == OPAQUE_FIRST + 17
    assert pulled.ext == {**(plain.ext or {}), "queueOffset": str(offset)}
    assert (pulled.code, pulled.flag, pulled.version) == (plain.code, plain.flag, plain.version)


@given(
    code=st.integers(0, 32_000), opaque=st.integers(0, 2**31 - 1), body=st.binary(max_size=50),
    remark=st.none() | st.text(max_size=40), codec=st.sampled_from(CODECS),
    ext=st.none() | st.dictionaries(             # brokers name no field of an answer so
        st.text(min_size=1, max_size=9).filter(lambda name: name != "opaque"),
        st.text(max_size=9), max_size=4),
)
def test_the_native_parser_reads_what_the_codec_writes(
    code: int, opaque: int, body: bytes, remark: str | None, codec: Codec,
    ext: dict[str, str | None] | None,
) -> None:
    frame = encode(Command(code=code, opaque=opaque, flag=1, body=body, remark=remark, ext=ext,
                           codec=codec))

    first = parse_response(frame)
    assert first is not None
    assert first[:3] == (code, opaque, body)
    again = parse_response(frame, first[3])          # with the hint: the quick way
    assert again == first


@given(st.binary(max_size=200))
def test_bytes_that_are_no_frame_are_refused_or_parsed_within_their_bounds(raw: bytes) -> None:
    frame = len(raw).to_bytes(4, "big") + raw

    parsed = parse_response(frame)

    assert parsed is None or frame.endswith(parsed[2])


@pytest.mark.parametrize("codec", CODECS)
def test_a_numeric_ext_field_is_found_by_its_name(codec: Codec) -> None:
    frame = encode(Command(code=20, flag=1, opaque=OPAQUE, codec=codec, remark="no match", ext={
        "minOffset": "1", "nextBeginOffset": "8123456789", "maxOffset": "9"}))

    assert number_in_response(frame, b"nextBeginOffset") == 8_123_456_789
    assert number_in_response(frame, b"absent", -5) == -5


def test_a_header_with_blanks_and_other_key_order_is_read_too() -> None:
    header = b'{ "opaque" :5}'
    odd = b'{"version":63, "code": 17, "remark":"\\"opaque\\":7", "opaque": 1000000003}\n'
    frames = [
        (4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text
        for text in (header, odd)
    ]

    assert parse_response(frames[0]) is None
    assert parse_response(frames[1]) == (17, 1_000_000_003, b"", 12)


# -- produce --------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("oneway", [False, True])
def test_every_message_arrives_once_and_looks_like_a_java_producers(
    codec: Codec, oneway: bool
) -> None:
    with fake_broker() as broker:
        report = produce(target(broker), ProduceOptions(
            span=Span(count=300, warmup=50), connections=3, depth=4, size=64, keys=True,
            codec=codec, oneway=oneway))
        sent = list(broker.sent)

    properties = [decode_properties((message.ext or {})["i"] or "") for message in sent]
    assert (report.errors, report.lost) == (0, 0)
    assert 350 <= len(sent) <= 350 + 3      # one-way: one answered message at each one's end
    assert len({item["UNIQ_KEY"] for item in properties}) == len(sent)
    assert len({item["KEYS"] for item in properties}) >= 100
    assert {item["WAIT"] for item in properties} == {"true"}
    assert {item["TAGS"] for item in properties} == {"TagA"}
    assert {len(message.body) for message in sent} == {64}
    assert {message.code for message in sent} == {RequestCode.SEND_MESSAGE_V2}
    born = [int((message.ext or {})["g"] or 0) for message in sent]
    assert all(abs(ms / 1000 - time.time()) < 60 for ms in born)


def test_no_more_than_its_limit_waits_for_a_broker_that_does_not_read() -> None:        # LG3
    """One-way at a rate: nothing else stops it."""
    row = [send_template("T", 0, b"x" * 10_000, oneway=oneway) for oneway in (False, True)]
    deaf, own = socket.socketpair()
    own.setblocking(False)
    load = ProduceLoad([own], 1 << 20, [row[:1]], 1, 1e9, [row[1:]])
    try:
        load.allow(3_000)
        load.run(completed_target=3_000, seconds=0.2)
        counts = load.results()
        waits = counts["begun"] * len(row[1][0]) - counts["bytes_out"]
        assert (1 << 20) - len(row[1][0]) <= waits <= 1 << 20
    finally:
        load.close()
        deaf.close()


def test_messages_go_round_all_queues_evenly() -> None:
    with fake_broker() as broker:
        produce(target(broker, 4), ProduceOptions(span=Span(count=400), connections=2, depth=5))
        by_queue = Counter(int((message.ext or {})["e"] or 0) for message in broker.sent)

    assert set(by_queue) == {0, 1, 2, 3}
    assert max(by_queue.values()) - min(by_queue.values()) <= 2


def test_no_connection_has_more_in_flight_than_its_depth() -> None:
    waiting: list[Command] = []
    most = 0

    def answer(broker: FakeBroker, command: Command) -> list[Command]:
        nonlocal most
        if command.code != RequestCode.SEND_MESSAGE_V2:
            return broker.healthy(command)
        waiting.append(command)
        most = max(most, len(waiting))
        if len(waiting) < 7:                # answers nothing until all that may be there is there
            return []
        answers = [broker.store(item)[0] for item in waiting]
        waiting.clear()
        return answers

    with fake_broker(answer) as broker:
        report = produce(target(broker), ProduceOptions(
            span=Span(count=70), connections=1, depth=7, heartbeat=False))

    assert report.items == 70
    assert most == 7


def test_other_response_codes_are_counted_as_errors_and_not_as_latencies() -> None:
    count = 0

    def answer(broker: FakeBroker, command: Command) -> list[Command]:
        nonlocal count
        if command.code != RequestCode.SEND_MESSAGE_V2:
            return broker.healthy(command)
        count += 1
        return [response(command, 2, "busy")] if count % 4 == 0 else broker.store(command)

    with fake_broker(answer) as broker:
        report = produce(target(broker), ProduceOptions(
            span=Span(count=100), connections=1, depth=1))

    assert report.errors_by_code == {2: 25}
    assert report.latency_us["count"] == 75
    assert "busy" in report.first_error


def test_a_broker_that_closes_its_connections_is_reported() -> None:
    def answer(broker: FakeBroker, command: Command) -> list[Command]:
        if command.code != RequestCode.SEND_MESSAGE_V2:
            return broker.healthy(command)
        return [response(command, 0, body=b"close")]

    with fake_broker(answer) as broker, pytest.raises(BenchError, match="closed every connection"):
        produce(target(broker), ProduceOptions(span=Span(count=10), connections=2, depth=2))


def test_an_open_loop_counts_a_stall_against_every_message_that_was_due() -> None:
    stall = threading.Event()
    seen = 0

    def answer(broker: FakeBroker, command: Command) -> list[Command]:
        nonlocal seen
        if command.code == RequestCode.SEND_MESSAGE_V2:
            seen += 1
            if seen == 100:
                stall.wait(0.5)             # nobody sets it: half a second without an answer
        return broker.healthy(command)

    with fake_broker(answer) as broker:
        report = produce(target(broker), ProduceOptions(
            span=Span(count=500), connections=1, depth=1, rate=500.0))

    assert report.items == 500
    assert report.latency_us["p90_us"] > 200_000    # a closed loop would see one slow message
    assert report.latency_us["max_us"] > 450_000


# -- signatures -----------------------------------------------------------------------------------


def checked(answer: Answer) -> tuple[Answer, Counter[int]]:
    """An answer that looks at the signature first; how many good ones there were of each code."""
    found: Counter[int] = Counter()

    def look(broker: FakeBroker, command: Command) -> list[Command]:
        again = Command(code=command.code, ext=dict(command.ext or {}), body=command.body)
        sign(again, ACCOUNT)
        if again.ext != command.ext:
            return [response(command, 1, "wrong signature")]
        found[command.code] += 1
        return answer(broker, command)

    return look, found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("oneway", [False, True])
def test_every_message_is_signed_as_clients_sign(codec: Codec, oneway: bool) -> None:
    answer, signed = checked(FakeBroker.healthy)
    with fake_broker(answer) as broker:
        produce(replace(target(broker), credentials=ACCOUNT), ProduceOptions(
            span=Span(count=100), connections=2, depth=4, keys=True, codec=codec, oneway=oneway))
        sent = len(broker.sent)

    assert signed[RequestCode.SEND_MESSAGE_V2] == sent >= 100
    assert signed[RequestCode.HEART_BEAT] == 2


@pytest.mark.parametrize("codec", CODECS)
def test_messages_signed_beforehand_are_one_message_and_its_signature_fits(codec: Codec) -> None:
    answer, signed = checked(FakeBroker.healthy)
    with fake_broker(answer) as broker:
        produce(replace(target(broker, 1), credentials=ACCOUNT), ProduceOptions(
            span=Span(count=20), connections=1, depth=2, codec=codec, beforehand=True))
        sends = [one for one in broker.sent if one.code == RequestCode.SEND_MESSAGE_V2]

    assert signed[RequestCode.SEND_MESSAGE_V2] == len(sends) >= 20
    assert all(one.ext == sends[0].ext for one in sends)


def test_ends_of_transactions_are_signed() -> None:
    def stored(broker: FakeBroker, command: Command) -> list[Command]:
        answers = [] if command.is_oneway else broker.healthy(command)
        for one in answers:
            one.ext = {**(one.ext or {}), "msgId": f"{12345:032X}"}
        return answers

    answer, signed = checked(stored)
    with fake_broker(answer) as broker:
        produce(replace(target(broker), credentials=ACCOUNT), ProduceOptions(
            span=Span(count=50), connections=1, depth=1, transactional=True, verify=False))

    assert signed[RequestCode.END_TRANSACTION] >= 49


@pytest.mark.parametrize("codec", CODECS)
def test_pulls_of_any_offset_are_signed(codec: Codec) -> None:
    answer, signed = checked(FakeBroker.healthy)
    with fake_broker(answer) as broker:
        account = replace(target(broker, 2), credentials=ACCOUNT)
        report = end_to_end(account, EndToEndOptions(
            span=Span(count=100, warmup=1), rate=1000.0, producers=1, consumers=1,
            suspend_ms=500, codec=codec))
        sent = len(broker.sent)
        read = consume(account, ConsumeOptions(connections=1, depth=1, batch=1, codec=codec))

    assert sent >= 101                      # more than one may have come before the measurement
    assert report.items >= 100
    assert read.items == sent == signed[RequestCode.SEND_MESSAGE_V2]
    assert signed[RequestCode.PULL_MESSAGE] > sent


def test_the_command_asks_in_the_name_of_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQCORE_SECRET_KEY", ACCOUNT.secret_key)
    answer, signed = checked(FakeBroker.healthy)
    with fake_broker(answer) as broker:
        result = CliRunner().invoke(bench_group, [
            "produce", "--broker", broker.addr, "--count", "50", "--queues", "2",
            "--access-key", ACCOUNT.access_key])

    assert result.exit_code == 0, result.output
    assert signed[RequestCode.UPDATE_AND_CREATE_TOPIC] == 1
    assert ACCOUNT.secret_key not in result.output


# -- consume and end to end -----------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 400)), min_size=1, max_size=6),
    st.sampled_from([1, 16, 32]), st.integers(1, 8),
)
def test_slices_cover_every_offset_exactly_once(
    spans: list[tuple[int, int]], batch: int, readers: int
) -> None:
    bounds = [(low, low + size) for low, size in spans]

    covered = [
        (queue, offset) for queue, begin, end in cut_slices(bounds, batch, readers)
        for offset in range(begin, end)
    ]

    assert sorted(covered) == [
        (queue, offset) for queue, (low, high) in enumerate(bounds) for offset in range(low, high)]


@pytest.mark.parametrize("codec", CODECS)
def test_consume_receives_every_stored_message_once(codec: Codec) -> None:
    with fake_broker() as broker:
        broker.queues = {queue: [b"x" * 40] * (500 + queue) for queue in range(4)}
        report = consume(target(broker), ConsumeOptions(connections=2, depth=3, codec=codec))

    assert report.items == 4 * 500 + 6
    assert report.errors == 0


def test_consume_starts_over_when_more_is_asked_than_stored() -> None:
    with fake_broker() as broker:
        broker.queues = {0: [b"x"] * 100}
        report = consume(target(broker, 1), ConsumeOptions(count=1000, connections=1, depth=2))

    assert report.items >= 1000


@pytest.mark.parametrize("spoil", ["gap", "magic", "queue", "torn"])
def test_consume_refuses_records_that_are_not_what_was_asked(spoil: str) -> None:
    def answer(broker: FakeBroker, command: Command) -> list[Command]:
        if command.code != RequestCode.PULL_MESSAGE:
            return broker.healthy(command)
        offset = int((command.ext or {})["queueOffset"] or 0)
        good = record(0, offset, b"body")
        body = {
            "gap": record(0, offset + 1, b"body"), "magic": good[:4] + b"\0\0\0\0" + good[8:],
            "queue": record(1, offset, b"body"), "torn": good[:-1],
        }[spoil]
        return [response(command, 0, body=body)]

    with fake_broker(answer) as broker:
        broker.queues = {0: [b"body"]}
        with pytest.raises(BenchError, match="received"):
            consume(target(broker, 1), ConsumeOptions(connections=1, depth=1))


@pytest.mark.parametrize("codec", CODECS)
def test_end_to_end_receives_what_it_sent_and_times_it_from_when_it_was_due(codec: Codec) -> None:
    with fake_broker() as broker:
        report = end_to_end(target(broker, 2), EndToEndOptions(
            span=Span(count=200, warmup=20), rate=400.0, producers=2, consumers=2,
            suspend_ms=500, codec=codec))

    assert report.items >= 200
    assert 0 < report.latency_us["p50_us"] < 1_000_000
    assert report.seconds == pytest.approx(0.5, abs=0.4)


# -- CPU and the command --------------------------------------------------------------------------


def test_the_cpu_meter_counts_a_child_of_the_watched_process() -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass\nprint('spun', flush=True)\ninput()"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    before = cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as parent:
        meter = CpuMeter([parent.pid])
        meter.start()
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == "spun\n"
        used = meter.read()
        members = process_tree(parent.pid)
        parent.stdin.close()

    assert len(members) == 2
    assert 0.15 < used < 5
    assert cpu_seconds(os.getpid()) >= before


def test_the_command_prints_one_json_object() -> None:
    with fake_broker() as broker:
        result = CliRunner().invoke(bench_group, [
            "produce", "--broker", broker.addr, "--count", "50", "--queues", "2", "--json"])

    report = json.loads(result.output)
    assert result.exit_code == 0
    assert report["items"] >= 1
    assert report["latency_us"]["count"] == report["items"]


@pytest.mark.parametrize(("arguments", "problem"), [
    (["produce", "--count", "5"], "give either --broker or --namesrv"),
    (["produce", "--broker", "127.0.0.1:1", "--count", "5", "--seconds", "1"], "not both"),
    (["produce", "--broker", "nowhere", "--count", "5"], "expected host:port"),
    (["consume", "--broker", "127.0.0.1:1"], "cannot connect"),
])
def test_a_wrong_option_is_named(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(bench_group, arguments)

    assert result.exit_code != 0
    assert problem in result.output


def route(broker_addr: str, queues: int) -> bytes:
    """A name server's answer to GET_ROUTEINFO_BY_TOPIC (remoting.md 4.7.2)."""
    return json.dumps({
        "brokerDatas": [{"brokerAddrs": {"0": broker_addr}, "brokerName": "b", "cluster": "c"}],
        "filterServerTable": {},
        "queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": queues,
                        "writeQueueNums": queues, "topicSysFlag": 0}],
    }, separators=(",", ":")).encode()


def test_a_name_server_says_where_the_topic_is_and_how_many_queues_it_has() -> None:
    with fake_broker() as broker:

        def answer(namesrv: FakeBroker, command: Command) -> list[Command]:
            assert command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
            return [response(command, 0, body=route(broker.addr, 3))]

        with fake_broker(answer) as namesrv:
            found = find_target("T", broker=None, namesrv=namesrv.addr, queues=8, create=False)

    assert found == Target(broker.addr, "T", 3)


def test_an_unknown_topic_is_an_error_unless_it_may_be_made() -> None:
    def answer(namesrv: FakeBroker, command: Command) -> list[Command]:
        return [response(command, 17, "no route")]

    with fake_broker(answer) as namesrv, pytest.raises(BenchError, match="no master broker"):
        find_target("T", broker=None, namesrv=namesrv.addr, queues=8, create=False)


@settings(max_examples=20)
@given(st.integers(0, 2000))
def test_a_send_template_keeps_its_body_at_the_place_it_names(size: int) -> None:
    body = np.arange(size, dtype=np.uint8).tobytes()

    frame, places, _ = send_template("topic", 2, body)

    assert size == 0 or frame[places["body_at"]:] == body
    assert decode(frame[4:]).body == body
