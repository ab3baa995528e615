"""The fast header reader says what the general one says, or that it leaves the frame to it."""
from __future__ import annotations

import json
import os
import random
import time
from collections import Counter

import pytest

from mqcore.bench.templates import pull_template, send_template
from mqcore.wire.command import Codec, Command, FrameError, decode, encode
from mqcore.wire.header import read
from tests.support import recorded
from tests.support.dice import dice, text, times, whole

READ, UNUSUAL, BROKEN = 0, 1, 2
SEND, PULL, END_TRANSACTION, SEND_V2, SEND_BATCH, LITE_PULL = 10, 11, 37, 310, 320, 361
V1_NAMES = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
            "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
            "maxReconsumeTimes", "batch", "bname")
PULL_NAMES = ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag",
              "commitOffset", "suspendTimeoutMillis", "subscription", "subVersion",
              "expressionType")
END_NAMES = ("producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback")
NAMES = {SEND: V1_NAMES, PULL: PULL_NAMES, END_TRANSACTION: END_NAMES,
         SEND_V2: tuple("abcdefghijklmn"), SEND_BATCH: tuple("abcdefghijklmn"),
         LITE_PULL: PULL_NAMES}


def header_of(payload):
    """(header bytes, is binary) of a frame without its length word."""
    word = int.from_bytes(payload[:4], "big")
    return payload[4:4 + (word & 0xFFFFFF)], word >> 24 == Codec.ROCKETMQ


def general(header, binary):
    """What the general reader makes of the same bytes: a Command, or None: it would close."""
    word = (int(binary) << 24 | len(header)).to_bytes(4, "big")
    try:
        return decode(word + header)
    except FrameError:
        return None


def expected_fields(command):
    ext = command.ext or {}
    return {number: ext[name].encode("utf-8", "surrogatepass")
            for number, name in enumerate(NAMES.get(command.code, ())) if ext.get(name) is not None}


def agreed(header, binary=False):
    """The fast reader's result, after comparing it with the general reader's."""
    result, fast = read(header, binary)
    command = general(header, binary)
    if result == READ:
        assert command is not None, header
        assert (fast["code"], fast["opaque"], fast["flag"], fast["version"]) == (
            command.code, command.opaque, command.flag, command.version), header
        expected = expected_fields(command)
        assert set(fast["fields"]) == set(expected), header
        for number, value in fast["fields"].items():
            assert same_text(value, expected[number]), (header, number)
    elif result == BROKEN:
        assert command is None, header
    return result


def same_text(fast, slow):
    """Equal; where the frame holds no valid UTF-8 each reader has its own way with it."""
    return fast.decode("utf-8", "replace") == slow.decode("utf-8", "replace")


# -- recorded --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recorded.NAMES)
def test_every_recorded_request_reads_alike(name):
    results = Counter()
    for exchange in recorded.exchanges(name):
        header, binary = header_of(exchange.request.payload)
        results[exchange.code in NAMES, agreed(header, binary)] += 1
    assert results[True, UNUSUAL] == results[True, BROKEN] == 0   # none takes the slow way
    assert results[False, BROKEN] == 0


def test_sends_and_pulls_in_both_codecs_are_among_the_recordings():
    seen = {(exchange.code, exchange.codec) for name in recorded.NAMES
            for exchange in recorded.exchanges(name)}
    assert {(SEND, "JSON"), (PULL, "JSON"), (PULL, "ROCKETMQ"), (SEND_V2, "JSON"),
            (SEND_V2, "ROCKETMQ"), (SEND_BATCH, "JSON"), (END_TRANSACTION, "JSON")} <= seen


# -- generated -------------------------------------------------------------------------------------

CHOSEN = ("", "a\"b", "\\", "/", "\n\t\r\b\f", "\x01\x02", "é", "中文", "\U0001F600",
          "\U0010FFFF", "%R%g")
INTS, SHORTS, LONGS = ((-2**bits, 2**bits - 1) for bits in (31, 15, 63))


def any_text(dice):
    return dice.choice(CHOSEN) if dice.randrange(2) else text(dice, 12)


def any_value(dice):
    return dice.choice((any_text, any_text, lambda dice: whole(dice, *LONGS),
                        lambda dice: dice.choice((True, False, None))))(dice)


def json_case(dice):
    """(header, the order of its members)"""
    code = dice.choice((*NAMES, 34))
    names = (*NAMES.get(code, V1_NAMES), "o", "z", "unknown")
    ext = {dice.choice(names): any_value(dice) for _ in range(dice.randint(0, 14))}
    top = {"code": code, "extFields": ext, "flag": whole(dice, *INTS), "language": "JAVA",
           "opaque": whole(dice, *INTS), "serializeTypeCurrentRPC": "JSON",
           "version": whole(dice, *INTS)}
    order = dice.sample(list(top), len(top))
    separators = dice.choice(((",", ":"), (", ", ": "), (" ,\n", " :\t")))
    return json.dumps({name: top[name] for name in order}, ensure_ascii=dice.random() < 0.5,
                      separators=separators).encode(), order


def test_generated_json_headers_read_alike():
    cases = dice()
    for _ in range(times(3000)):
        header, order = json_case(cases)
        expected = READ if order.index("code") < order.index("extFields") else UNUSUAL
        assert agreed(header) == expected, header


def test_generated_binary_headers_read_alike():
    names = sorted({*V1_NAMES, *PULL_NAMES, *END_NAMES, *"abcdefghijklmno"})
    cases = dice()
    for _ in range(times(3000)):
        ext = {cases.choice(names): any_text(cases) for _ in range(cases.randint(0, 14))}
        frame = encode(Command(
            code=cases.choice((*NAMES,)), version=whole(cases, *SHORTS), opaque=whole(cases, *INTS),
            flag=whole(cases, *INTS), remark=any_text(cases), ext=ext, codec=Codec.ROCKETMQ))
        assert agreed(*header_of(frame[4:])) == READ, frame


def json_header(**fields):
    top = {"code": SEND_V2, "opaque": 1, "flag": 0, "version": 401} | fields
    return json.dumps(top).encode()


@pytest.mark.parametrize(("written", "value"), [
    (r"\ud83d\ude00", "\U0001F600".encode()), (r"\u4e2d", "中".encode()), (r"\u00e9", "é".encode()),
    (r"\u0041\u0001", b"A\x01"), (r"\"\\\/\b\f\n\r\t", b"\"\\/\b\f\n\r\t"), (r"\uD83D\uDE00x",
                                                                             "\U0001F600x".encode())])
def test_escapes_are_undone(written, value):
    header = b'{"code":310,"flag":0,"opaque":1,"extFields":{"b":"%s"}}' % written.encode()
    assert read(header) == (READ, {"code": 310, "opaque": 1, "flag": 0, "version": 0,
                                   "fields": {1: value}})
    assert agreed(header) == READ


@pytest.mark.parametrize("text", [
    rb"\x", rb"\u12", rb"\u12g4", rb"\ud8", rb"\u", b"\\\xff", rb"\U0041"])
def test_a_broken_escape_is_left_to_the_general_reader(text):
    for name in (b"b", b"unknown"):
        header = b'{"code":310,"flag":0,"opaque":1,"extFields":{"%s":"%s"}}' % (name, text)
        assert agreed(header) == UNUSUAL


@pytest.mark.parametrize("text", [
    b"007", b"-0", b"-", b"+1", b"1.0", b"1e3", b"yes", b"TRUE", b"NaN"])
def test_a_number_or_word_that_nobody_writes_is_left_to_the_general_reader(text):
    assert agreed(b'{"code":310,"flag":0,"opaque":1,"extFields":{"b":%s}}' % text) == UNUSUAL


@pytest.mark.parametrize("header", [
    b"", b"{", b"{}", b"[]", b"null", b'{"code":310}', b'{"flag":0,"opaque":1}',
    b'{"code":310,"flag":0,"opaque":1', b'{"code":310,"flag":0,"opaque":1}x',
    b'{"code":310,"flag":0,"opaque":1,}', b'{"code":310 "flag":0,"opaque":1}',
    b'{"code":"x","flag":0,"opaque":1}', b'{"code":310,"opaque":4294967296}',
    b'{"code":310,"opaque":1,"flag":4294967296}',
    b'{"code":310,"flag":0,"opaque":1,"version":4294967296}',
    b'{"code":99999999999999999999,"flag":0,"opaque":1}',
    b'{"code":310,"flag":0,"opaque":1,"extFields":[]}',
    b'{"code":310,"flag":0,"opaque":1,"extFields":{"a":{}}}',
    b'{"code":310,"flag":0,"opaque":1,"extFields":{"a":[]}}',
    b'{"code":310,"flag":0,"opaque":1,"extFields":{"a"}}',
    b'{"code":310,"flag":0,"opaque":1,"other":{}}',
    b'{"extFields":{"a":"1"},"code":310,"flag":0,"opaque":1}',
    b'{"code":310,"flag":0,"opaque":1,"extFields":{"a":"1"},"code":11}',
    b'{"code":310,"flag":0,"opaque":1,"extFields":{"a":"1"},"extFields":{}}',
    b'{"code":310,"flag":0,"opaque":1,"extFields":{"a":"1"},"extFields":9}',
    b'{"code":310,"flag":0,"opaque":1,"extFields":{"a":"1"},"extFields":null}',
    b'{"code":310,"flag":0,"opaque":1,"extFields":""}',
    b'{"c\\u006fde":310,"flag":0,"opaque":1}',
    b'{"code":310,"flag":0,"opaque":1,"extFields":{"\\u0061":"1"}}',
    b'{"code":310,"opaque":null}', b'\xef\xbb\xbf{"code":310,"flag":0,"opaque":1}'])
def test_anything_out_of_the_ordinary_is_left_to_the_general_reader(header):
    assert agreed(header) == UNUSUAL


def test_of_two_equal_fields_the_last_one_counts():
    header = b'{"code":310,"flag":0,"opaque":1,"extFields":{"b":"x","b":"y","c":"z","c":null}}'
    assert read(header)[1]["fields"] == {1: b"y"}
    assert agreed(header) == READ


@pytest.mark.parametrize("cut", range(21))
def test_a_binary_header_shorter_than_its_fixed_part_is_broken(cut):
    frame = send_template("t", 0, b"", codec=Codec.ROCKETMQ).frame
    header, _ = header_of(frame[4:])
    assert agreed(header[:cut], True) == BROKEN


def test_random_bytes_read_alike():
    cases = dice()
    for raw in (b"\x00" * 21, b"\xff" * 40, *(
            cases.randbytes(cases.randint(0, 60)) for _ in range(times(2000)))):
        for binary in (True, False):
            agreed(raw, binary)


# -- mutated ---------------------------------------------------------------------------------------

# of each kind, and each at 20 lengths; libFuzzer reads more (tests/fuzz), and so does `make soak`
MUTANTS = 12_500 if os.environ.get("SOAK_SECONDS") else 2_500


def mutants(base, count, dice):
    """`count` headers, each with one to four bytes changed, put in, taken out, or cut off."""
    for _ in range(count):
        raw = bytearray(base)
        for _ in range(dice.randrange(1, 5)):
            at = dice.randrange(len(raw) + 1)
            kind = dice.randrange(8)
            if kind < 4 and at < len(raw):
                raw[at] = dice.randrange(256) if kind < 2 else dice.choice(b'"\\{}:,0-u\xff\x00')
            elif kind < 6:
                raw[at:at] = bytes([dice.choice(b'"\\{}:,0-u\xff\x00')])
            elif kind == 6:
                del raw[at:at + dice.randrange(9)]
            elif dice.randrange(8) == 0:
                del raw[at:]
        yield bytes(raw)


BASES = [(header_of(make[4:]), name) for make, name in [
    (send_template("TopicTest", 3, b"", codec=Codec.JSON)[0], "send json"),
    (send_template("TopicTest", 3, b"", codec=Codec.ROCKETMQ)[0], "send binary"),
    (pull_template("TopicTest", 3, group="G", batch=32, codec=Codec.JSON)[0], "pull json"),
    (pull_template("TopicTest", 3, group="G", batch=32, codec=Codec.ROCKETMQ)[0], "pull binary")]]


@pytest.mark.parametrize("base", [base for base, _ in BASES], ids=[name for _, name in BASES])
def test_mutated_headers_read_alike(base):
    header, binary = base
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    for mutant in mutants(header, times(8000), random.Random(seed)):
        agreed(mutant, binary)


def processor_s(header, binary, times):
    """What reading the first 20 lengths of `header` takes, each `times` times."""
    began = time.process_time()
    for _ in range(times):
        for cut in range(20):
            read(header[:len(header) - cut * 3], binary)
    return time.process_time() - began


@pytest.mark.slow
def test_mutated_headers_end_in_one_of_three_ways_and_in_bounded_time():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    results = Counter()
    for (header, binary), _ in BASES:
        spent = 0.0
        sound = processor_s(memoryview(header), binary, MUTANTS // 10)
        for mutant in mutants(header, MUTANTS, dice):
            # the same bytes at 20 lengths: every cut of a mutant is a mutant of its own
            view = memoryview(mutant)
            began = time.process_time()
            for cut in range(20):
                results[read(view[:len(mutant) - cut * 3], binary)[0]] += 1
            spent += time.process_time() - began
        assert spent / 10 < 5 * sound          # 0.6 to 1.3
    assert sum(results.values()) == 80 * MUTANTS
    assert set(results) <= {READ, UNUSUAL, BROKEN}
