"""The tables' coder against Google's library."""
from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from mqcore.wire.protobuf import ProtobufError, Shapes

SHAPES = Shapes("""
Inner: 1 name str, 2 number i32
Outer: 1 text str, 2 small i32, 3 large i64, 4 flag bool, 5 raw bytes, 6 inner Inner, 7 inners*
    Inner, 8 numbers* i32, 9 words* str, 10 ratio float, 20 pairs map
""")
TYPES = {"str": 9, "i32": 5, "i64": 3, "bool": 8, "bytes": 12, "float": 2}


def google() -> type:
    """The same messages, declared to Google's library."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="name", number=1, type=9, label=1)
    inner.field.add(name="number", number=2, type=5, label=1)
    outer = file.message_type.add(name="Outer")
    for number, name, kind, label in (
            (1, "text", "str", 1), (2, "small", "i32", 1), (3, "large", "i64", 1),
            (4, "flag", "bool", 1), (5, "raw", "bytes", 1), (8, "numbers", "i32", 3),
            (9, "words", "str", 3), (10, "ratio", "float", 1)):
        outer.field.add(name=name, number=number, type=TYPES[kind], label=label)
    outer.field.add(name="inner", number=6, type=11, label=1, type_name=".t.Inner")
    outer.field.add(name="inners", number=7, type=11, label=3, type_name=".t.Inner")
    entry = outer.nested_type.add(name="PairsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=9, label=1)
    outer.field.add(name="pairs", number=20, type=11, label=3, type_name=".t.Outer.PairsEntry")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Outer"))


Outer: Any = google()
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
inner = st.fixed_dictionaries({}, optional={"name": st.text(), "number": i32})
outer = st.fixed_dictionaries({}, optional={
    "text": st.text(), "small": i32, "large": i64, "flag": st.booleans(), "raw": st.binary(),
    "inner": inner, "inners": st.lists(inner, max_size=3), "numbers": st.lists(i32, max_size=5),
    "words": st.lists(st.text(), max_size=3), "ratio": st.floats(width=32, allow_nan=False),
    "pairs": st.dictionaries(st.text(), st.text(), max_size=3)})


@given(outer)
def test_what_is_written_reads_the_same_elsewhere(message: dict[str, Any]) -> None:
    read = Outer.FromString(SHAPES.encode("Outer", message))
    assert read == Outer(**message)


@given(outer)
def test_what_others_write_is_read(message: dict[str, Any]) -> None:
    written = Outer(**message)
    read = SHAPES.decode("Outer", written.SerializeToString())
    assert Outer(**read) == written


def test_unknown_fields_are_passed_over() -> None:
    assert SHAPES.decode("Inner", SHAPES.encode("Outer", {
        "text": "name", "small": 7, "raw": b"x", "ratio": 1.5,
        "pairs": {"a": "b"}})) == {"name": "name", "number": 7}


@pytest.mark.parametrize(("data", "said"), [
    (b"\x0a", "not whole, or too long"),             # a length that is missing
    (b"\x0a\x05abc", "field 1 is not whole"),
    (b"\x08" + b"\xff" * 11, "not whole, or too long"),
    (b"\x0b", "unknown wire type"),
    (b"\x00\x01", "has no number"),
    (b"\x0a\x01\xff", "expected UTF-8"),
    (b"\x08\x01", "expected bytes"),                 # text that is a number
    (b"\x12\x01\x01", "expected a number"),
])
def test_what_is_none_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ProtobufError, match=said):
        SHAPES.decode("Inner", data)


def test_messages_inside_messages_end() -> None:
    shapes = Shapes("Deep: 1 deep Deep")
    data = b""
    for _ in range(40):
        data = b"\x0a" + bytes([len(data)]) + data
    with pytest.raises(ProtobufError, match="more than 32"):
        shapes.decode("Deep", data)
