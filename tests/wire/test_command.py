"""Frames and headers in both encodings, against recorded frames and against nonsense."""
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.turns import finished
from mqcore.wire.codes import FLAG_RESPONSE, FRAME_LENGTH_MAX, LanguageCode, RequestCode
from mqcore.wire.command import (
    HEADER_ENTRIES_MAX,
    Codec,
    Command,
    FrameError,
    decode,
    decode_in_turns,
    encode,
    request,
    response,
)
from mqcore.wire.fastjson import SCALAR_SIZE_MAX
from tests.support import recorded
from tests.support.units import longest_step, unit


def json_frame(header: str | bytes, body: bytes = b"") -> bytes:
    raw = header.encode() if isinstance(header, str) else header
    return len(raw).to_bytes(4, "big") + raw + body


def binary_frame(ext: dict[str, str]) -> bytes:
    return encode(Command(100, ext=ext, codec=Codec.ROCKETMQ))[4:]


def java_text(value):
    """What Java's string map holds for a JSON value of a recorded header."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None else str(value)


def expected_ext(header):
    ext = header.get("extFields")
    return None if ext is None else {name: java_text(value) for name, value in ext.items()}


def expected_language(header):
    language = header["language"]
    return LanguageCode[language] if isinstance(language, str) else language


def without_nulls(command):
    """Null values and an empty map are not encoded, by the protocol; no language is JAVA."""
    ext = {name: value for name, value in (command.ext or {}).items() if value is not None}
    language = command.language
    if language is None and command.codec == Codec.JSON:
        language = LanguageCode.JAVA
    return replace(command, ext=ext or None, language=language)


@pytest.mark.parametrize("name", recorded.NAMES)
def test_every_recorded_header_decodes_to_what_was_recorded(name):
    for message in recorded.messages(name):
        command = decode(message.payload)
        header = message.header

        assert (command.code, command.version, command.opaque, command.flag) == (
            header["code"], header["version"], header["opaque"], header["flag"]
        )
        assert command.remark == header.get("remark")
        assert command.language == expected_language(header)
        assert command.ext == expected_ext(header)
        if message.body_text is not None:
            assert command.body.decode() == message.body_text


@pytest.mark.parametrize("name", recorded.NAMES)
def test_every_recorded_frame_survives_encoding(name):
    for message in recorded.messages(name):
        command = decode(message.payload)
        again = encode(command)

        assert int.from_bytes(again[:4], "big") == len(again) - 4
        assert without_nulls(decode(again[4:])) == without_nulls(command)


@pytest.mark.parametrize("name", recorded.NAMES)
def test_every_recorded_frame_keeps_its_meaning_through_the_other_encoding(name):
    for message in recorded.messages(name):
        command = decode(message.payload)
        other = Codec.JSON if command.codec == Codec.ROCKETMQ else Codec.ROCKETMQ
        there = decode(encode(replace(command, codec=other))[4:])
        back = decode(encode(replace(there, codec=command.codec))[4:])

        meaning = without_nulls(command)
        if Codec.ROCKETMQ in (command.codec, other):        # empty text becomes null there
            ext = {k: v for k, v in (meaning.ext or {}).items() if v}
            meaning = replace(meaning, ext=ext or None, remark=meaning.remark or None)
        assert without_nulls(back) == meaning


def test_java_frames_are_written_byte_for_byte():
    frame = bytes.fromhex(
        "00000026010000220069000199000000070000000000000000"
        "0000000d0005746f706963000000025431"
    )
    asked = Command(code=105, opaque=7, ext={"topic": "T1"}, codec=Codec.ROCKETMQ)

    assert encode(asked) == frame
    assert encode(replace(asked, codec=Codec.JSON))[8:] == (
        b'{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )


@pytest.mark.parametrize(("header", "name", "value"), [
    ('{"code":11,"opaque":1,"flag":0,"extFields":{"a":3}}', "ext", {"a": "3"}),
    ('{"code":11,"opaque":1,"flag":0,"extFields":{"a":true}}', "ext", {"a": "true"}),
    ('{"code":11,"opaque":1,"flag":0,"extFields":{"a":1.5}}', "ext", {"a": "1.5"}),
    ('{"code":11,"opaque":1,"flag":0,"extFields":{"a":null}}', "ext", {"a": None}),
    ('{"code":11,"opaque":1,"flag":0,"extFields":{"a":{"b":[1]}}}', "ext", {"a": '{"b":[1]}'}),
    ('{"code":11,"opaque":1,"flag":0,"ext_fields":{"a":"b"}}', "ext", {"a": "b"}),
    ('{"Code":"11","OPAQUE":1,"EXT_FIELDS":{"a":"b"}}', "ext", {"a": "b"}),
    ("{'code':11,'opaque':1,'extFields':{'a':'b'}}", "ext", {"a": "b"}),
    ('{code:11,opaque:1,extFields:{a:"b"}}', "ext", {"a": "b"}),
    ('{"code":11,"opaque":1}\n', "code", 11),
    ('{"code":11,"opaque":"5"}', "opaque", 5),
    ('{"code":11,"opaque":1,"remark":7}', "remark", "7"),
    ('{"code":11,"opaque":1,"language":"go"}', "language", LanguageCode.GO),
    ('{"code":11,"opaque":1,"language":9}', "language", LanguageCode.GO),
    ('{"code":11,"opaque":1,"language":"KLINGON"}', "language", None),
    ('{"code":11,"opaque":1}', "language", LanguageCode.JAVA),
    ('{"opaque":1}', "code", 0),
    ('{"code":11,"opaque":1,"unknown":[1,2]}', "code", 11),
])
def test_a_json_header_is_read_as_java_reads_it(header, name, value):
    assert getattr(decode(json_frame(header)), name) == value


@pytest.mark.parametrize("frame", [
    b"",
    b"\0\0\0",
    json_frame(""),
    json_frame("null"),
    json_frame("[]"),
    json_frame('{"code":'),
    json_frame('{"code":99999999999}'),
    json_frame('{"code":1,"opaque":2147483648}'),
    json_frame('{"code":1,"extFields":[]}'),
    json_frame("[" * 100_000),
    b"\0\0\0\x05{}",
    b"\x02\0\0\x02{}",
    b"\x01\0\0\x14" + bytes(20),
    b"\x01\0\0\x15" + bytes(13) + b"\x7f\xff\xff\xff" + bytes(4),
    b"\x01\0\0\x15" + bytes(17) + b"\0\0\0\x01",
    b"\x01\0\0\x17" + bytes(17) + b"\0\0\0\x02\0\x05",
])
def test_what_is_no_frame_is_refused(frame):
    with pytest.raises(FrameError):
        decode(frame)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("length", [1, 200])
def test_a_header_may_have_so_many_entries_and_no_more(codec, length):
    """Read in one go, and part by part; commas in texts are no entries."""
    ext = {f"k{number}": "," * length for number in range(HEADER_ENTRIES_MAX)}
    sent = request(RequestCode.PUT_KV_CONFIG, ext, b"body", codec=codec)
    frame = encode(sent)[4:]
    assert decode(frame).ext == ext
    assert finished(decode_in_turns(frame)) == decode(frame)
    more = encode(replace(sent, ext={**ext, "one more": "x"}))[4:]
    for read in (decode, lambda frame: finished(decode_in_turns(frame))):
        with pytest.raises(FrameError, match="more than 5000 ext entries"):
            read(more)


def entries(count: int) -> bytes:
    return b",".join(b'"k%d":"v"' % number for number in range(count))


LONG = {                                # made when asked for: together 70 MB
    "entries": (lambda: json_frame(b'{"code":100,"extFields":{%s}}' % entries(99_000)),
                "6000 values"),
    "members": (lambda: json_frame(b"{%s}" % entries(99_000)), "6000 values"),
    "few members": (lambda: json_frame(b"{%s}" % entries(501)), "500 members"),
    "lists": (lambda: json_frame(b'{"extFields":{"k":[%s]}}' % b",".join(99_000 * [b"[]"])),
              "6000 values"),
    "a long text": (lambda: json_frame(b'{"extFields":{"k":"%s"}}' % (b"x" * (15 << 20))),
                    "of more than"),
    "texts": (lambda: json_frame(b'{"code":100,"extFields":{%s}}' % b",".join(
        b'"k%d":"%s"' % (one, (SCALAR_SIZE_MAX // 2) * b"x") for one in range(30))), ""),
    "no UTF-8": (lambda: json_frame(b'{"extFields":{"k":"%s"}}' % (b"\xff" * (15 << 20))),
                 "of more than"),
    "not strict": (lambda: json_frame(b"{extFields:{%s}}" % b",".join(
        b"k%d:1" % number for number in range(7_000))), "5000 ext entries"),
    "binary, no UTF-8": (lambda: binary_frame({"k": "x" * (15 << 20)}).replace(b"x", b"\xff"),
                         "of more than"),
    "binary texts, no UTF-8": (lambda: binary_frame({
        str(one): "x" * (SCALAR_SIZE_MAX // 4) for one in range(50)}).replace(b"x", b"\xff"), ""),
}


@pytest.mark.parametrize("kind", LONG)
def test_no_header_takes_long_between_two_pauses(kind):
    make, refusal = LONG[kind]
    frame = make()
    refused = []

    def reading():
        try:
            yield from decode_in_turns(frame)
        except FrameError as error:
            refused.append(str(error))

    assert longest_step(reading()) / unit() < 1.5
    assert [refusal in text for text in refused] == ([True] if refusal else [])


def test_a_frame_longer_than_peers_accept_is_neither_read_nor_written():
    with pytest.raises(FrameError):
        decode(bytes(FRAME_LENGTH_MAX + 1))
    with pytest.raises(FrameError):
        encode(Command(code=10, body=bytes(FRAME_LENGTH_MAX)))


@given(st.binary(max_size=300))
def test_random_bytes_are_a_frame_or_a_frame_error(data):
    with suppress(FrameError):
        decode(data)


@given(st.integers(0, 10_000), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=8))
def test_a_mutated_recorded_frame_is_a_frame_or_a_frame_error(pick, changes):
    frames = mutable_frames()
    frame = bytearray(frames[pick % len(frames)])
    for position, byte in changes:
        frame[position % len(frame)] = byte
    try:
        command = decode(frame)
    except FrameError:
        return
    try:
        again = encode(command)
    except FrameError:                  # such as a code that only JSON can carry
        return
    assert without_nulls(decode(again[4:])) == without_nulls(command)


_FRAMES: list[bytes] = []


def mutable_frames() -> list[bytes]:
    if not _FRAMES:
        for name in ("send", "pull", "acl"):
            _FRAMES.extend(m.payload for m in recorded.messages(name) if len(m.frame) < 4096)
    return _FRAMES


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.sampled_from(Codec), st.integers(-32768, 32767), st.integers(-(2**31), 2**31 - 1),
    texts.filter(bool) | st.none(), st.dictionaries(texts.filter(bool), texts.filter(bool)),
    st.binary(max_size=50),
)
def test_a_command_survives_encoding(codec, code, opaque, remark, ext, body):
    command = Command(
        code=code, opaque=opaque, remark=remark, ext=ext or None, body=body, codec=codec
    )
    assert decode(encode(command)[4:]) == command


def test_a_response_copies_opaque_and_codec_and_sets_the_flag():
    asked = request(RequestCode.HEART_BEAT, codec=Codec.ROCKETMQ)
    answer = response(asked, 0)

    assert (answer.opaque, answer.codec, answer.flag) == (
        asked.opaque, Codec.ROCKETMQ, FLAG_RESPONSE
    )
    assert answer.is_response
    assert not asked.is_response


def test_opaques_of_one_process_differ():
    assert request(34).opaque != request(34).opaque
