"""The native codec writes what mqcore.wire writes, and reads whatever a broker may answer."""
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.client import ConfigError, Message, MessageTooLarge
from mqcore.client.native.answers import FrameReader, Waiter, take_expired
from mqcore.client.native.sends import KeySource, SendFrames, batch_body, batch_item_size
from mqcore.wire.codes import LanguageCode, RequestCode
from mqcore.wire.command import Codec, Command, FrameError, encode, request, response
from mqcore.wire.ids import UniqueKeys, parse_unique_key
from mqcore.wire.properties import encode_properties
from mqcore.wire.records import BatchItem, decode_batch, encode_batch

NOW_MS = 1_700_000_000_000
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
# Everything but the separators, which are refused, and single surrogates only now and then
TEXT = st.text(st.characters(blacklist_characters="\x01\x02"), max_size=40)
PROPERTIES = st.dictionaries(TEXT, TEXT, max_size=6)


@given(group=TEXT, topic=TEXT, broker=TEXT, properties=PROPERTIES, body=st.binary(max_size=200),
       opaque=st.integers(0, (1 << 31) - 1), queue_id=I32, sys_flag=I32, flag=I32,
       born_ms=st.integers(0, 1 << 50), is_batch=st.booleans(), is_oneway=st.booleans(),
       unit_mode=st.booleans())
def test_a_send_is_the_frame_that_the_general_encoder_writes(
        group, topic, broker, properties, body, opaque, queue_id, sys_flag, flag, born_ms,
        is_batch, is_oneway, unit_mode):
    frames = SendFrames(group, topic, broker, default_topic="TBW102", default_queue_count=4,
                        language="PYTHON", unit_mode=unit_mode)
    out = bytearray(b"before")
    size = frames.put(out, 310, opaque, queue_id, sys_flag, born_ms, flag, properties, body,
                      is_batch, is_oneway)
    expected = encode(Command(
        code=RequestCode.SEND_MESSAGE_V2, language=LanguageCode.PYTHON, opaque=opaque,
        flag=2 if is_oneway else 0, body=body, ext={
            "a": group, "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id),
            "f": str(sys_flag), "g": str(born_ms), "h": str(flag),
            "i": encode_properties(properties), "j": "0", "k": str(unit_mode).lower(),
            "m": str(is_batch).lower(), "n": broker}))
    assert bytes(out) == b"before" + expected
    assert size == len(expected)


ENCODABLE = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=("Cs",)),
                    min_size=1, max_size=20)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=50), I32,
                          st.dictionaries(ENCODABLE.filter(str.strip), ENCODABLE, max_size=3)),
                min_size=1, max_size=10), st.integers(1, 10), st.integers(1, 400))
def test_batches_hold_the_messages_in_order_within_the_limits(items, count_max, size_max):
    messages = []
    for body, flag, properties in items:
        message = Message("T", body, flag=flag)
        message.properties.update(properties)
        messages.append(message)
    at, found = 0, []
    while at < len(messages):
        made, end = batch_body(messages, at, count_max, size_max)
        part = messages[at:end]
        assert 0 < len(part) <= count_max
        assert len(part) == 1 or len(made) <= size_max
        assert made == encode_batch(BatchItem(m.body, m.properties, m.flag) for m in part)
        assert len(made) == sum(map(batch_item_size, part))
        found += decode_batch(made)
        at = end
    assert [item.body for item in found] == [message.body for message in messages]


@pytest.mark.parametrize(("properties", "error"), [
    ({"a": "x" * 32_767}, MessageTooLarge), ({"a\x01": "b"}, ConfigError),
    ({"a": "b\x02"}, ConfigError), ({"a": 7}, ConfigError), ({7: "a"}, ConfigError),
])
def test_properties_that_would_read_back_differently_are_refused(properties, error):
    frames = SendFrames("g", "t", "b", default_topic="TBW102", default_queue_count=4,
                        language="PYTHON")
    out = bytearray(b"before")
    with pytest.raises(error):
        frames.put(out, 310, 1, 0, 0, NOW_MS, 0, properties, b"x", False, False)
    assert out == b"before"


def test_a_frame_beyond_the_limit_is_refused():
    frames = SendFrames("g", "t", "b", default_topic="TBW102", default_queue_count=4,
                        language="PYTHON")
    out = bytearray()
    with pytest.raises(MessageTooLarge):
        frames.put(out, 310, 1, 0, 0, NOW_MS, 0, {}, bytes(16 << 20), False, False)
    assert out == b""


def test_keys_are_those_of_the_wire_with_a_prefix_of_their_own():
    source, message = KeySource(), Message("T", "x")
    first, second = source.next(NOW_MS), source.next(NOW_MS)
    model = UniqueKeys()
    assert len(first) == len(model.next(NOW_MS))
    assert first[-12:-4] == model.next(NOW_MS)[-12:-4]
    assert int(second[-4:], 16) == int(first[-4:], 16) + 1
    assert (parse_unique_key(first, NOW_MS + 1).created_ms, first[:-12]) == (NOW_MS, second[:-12])
    assert source.give(message, NOW_MS) == source.give(message, NOW_MS + 5) == message.unique_key
    messages = [Message("T", "a"), Message("T", "b")]
    assert source.give_all(messages, NOW_MS) == [m.unique_key for m in messages]
    assert source.next(NOW_MS + 40 * 86_400_000)[-12:-4] != first[-12:-4]


class Asked(Waiter):
    """Notes what comes for it."""

    def __init__(self, deadline=0.0, wants_place=False):
        self.deadline = deadline
        self.wants_place = wants_place
        self.got = []

    def stored(self, *place):
        self.got.append(place)

    def answered(self, command):
        self.got.append(command)


def reading(waiting, requests=None, strays=None, **limits):
    return FrameReader(waiting, [].append if requests is None else requests.append,
                       [].append if strays is None else strays.append, **limits)


def feed(reader, stream, step):
    for start in range(0, len(stream), step):
        piece = stream[start:start + step]
        room = reader.room()
        assert len(room) >= 64 * 1024
        room[:len(piece)] = piece
        reader.received(len(piece))


STORED = {"msgId": "0A0B", "queueId": "3", "queueOffset": "77", "MSG_REGION": "R",
          "TRACE_ON": "false", "transactionId": "tx"}


@pytest.mark.parametrize("step", [1, 3, 7, 50, 100_000])
def test_frames_arrive_whole_however_they_are_cut(step):
    asked = [request(n, {"x": "y" * n}, bytes(n)) for n in range(20)]
    waiting = {command.opaque: Asked() for command in asked}
    waiters, requests, strays = list(waiting.values()), [], []
    reader = reading(waiting, requests, strays)
    answers = [response(command, n, "r", {"k": "v"}, b"b" * n) for n, command in enumerate(asked)]
    stray = response(request(1), 7)
    stream = b"".join(encode(command) for command in [*asked, *answers, stray])
    feed(reader, stream, step)
    assert requests == asked
    assert [waiter.got for waiter in waiters] == [[answer] for answer in answers]
    assert (waiting, strays) == ({}, [stray])


@pytest.mark.parametrize("code", [0, 10, 11, 12])
@pytest.mark.parametrize("codec", [Codec.JSON, Codec.ROCKETMQ])
def test_where_a_message_is_stored_is_read(code, codec):
    asked, sending = request(310, codec=codec), Asked(wants_place=True)
    answer = response(asked, code, None, dict(STORED))
    feed(reading({asked.opaque: sending}), encode(answer), 1_000)
    if codec is Codec.JSON:
        assert sending.got == [(code, 3, 77, "0A0B", "R", "tx", False)]
    else:
        assert sending.got == [answer]


@pytest.mark.parametrize("header", [
    b'{"code":0,"extFields":{"queueId":"3","queueOffset":"77","msgId":"0A\\u0042"},"flag":1,'
    b'"opaque":5}',
    b'{"code":0,"extFields":{"queueId":"3"},"flag":1,"opaque":5}',
    b'{"code":1,"flag":1,"opaque":5,"remark":"a \\"word\\""}',
    b'{"code":0,"extFields":{"queueId":"3","queueOffset":"7.5"},"flag":1,"opaque":5}',
    b'{"code":0,"extFields":{"a":[1,2],"queueId":"3","queueOffset":"7"},"flag":1,"opaque":5}',
    b' { "opaque" : 5 , "flag":1,"CODE":2} ',
])
def test_an_unusual_answer_goes_the_general_way(header):
    frame = len(header).to_bytes(4, "big") + header
    sending = Asked(wants_place=True)
    feed(reading({5: sending}), len(frame).to_bytes(4, "big") + frame, 1_000)
    (command,) = sending.got
    assert isinstance(command, Command)
    assert command.opaque == 5


def test_an_answer_with_blanks_and_numbers_is_plain():
    header = (b'{ "code" : 0 , "extFields" : { "queueId" : 3, "queueOffset":"77", "msgId":"" },'
              b' "flag":1, "opaque":5, "remark":null, "version":399 }')
    frame = len(header).to_bytes(4, "big") + header
    sending = Asked(wants_place=True)
    feed(reading({5: sending}), len(frame).to_bytes(4, "big") + frame, 1_000)
    assert sending.got == [(0, 3, 77, "", "", "", True)]


@given(st.binary(max_size=60))
def test_nonsense_is_a_frame_error_or_no_frame_yet(data):
    requests, strays = [], []
    reader = reading({}, requests, strays, frame_length_max=1_000)
    with contextlib.suppress(FrameError):
        feed(reader, data, 7)
    assert all(isinstance(command, Command) for command in [*requests, *strays])


@pytest.mark.parametrize("length", [1_001, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_a_frame_beyond_the_limit_ends_the_connection(length):
    with pytest.raises(FrameError, match="frame length"):
        feed(reading({}, frame_length_max=1_000), length.to_bytes(4, "big"), 4)


def test_a_long_frame_gets_the_room_it_needs():
    asked, waiter = request(11), Asked()
    answer = response(asked, 0, body=bytes(range(256)) * 20_000)
    reader = reading({asked.opaque: waiter})
    feed(reader, encode(answer) * 1, 60_000)
    assert waiter.got == [answer]
    assert len(reader.room()) == 64 * 1024


def test_only_those_past_their_deadline_expire():
    soon, later = Asked(100.0), Asked(300.0)
    waiting = {1: soon, 2: later}
    assert take_expired(waiting, 99.0) == ([], 100.0)
    assert take_expired(waiting, 100.0) == ([soon], 300.0)
    assert take_expired(waiting, 300.0) == ([later], 0.0)
    assert waiting == {}
