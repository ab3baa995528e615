"""Answers that are not what they should be: a ClientError that says where."""
from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mqcore.client import ClientError, MessageQueue
from mqcore.client.admin.bodies import (
    document,
    header_number,
    properties_text,
    settings_of,
    when,
)
from mqcore.wire.command import Command


def answer(text: str):
    return document(Command(0, body=text.encode()), "b:1")


def test_members_by_kind():
    fields = answer('{"n":5,"t":"x","f":"TRUE","d":1.5,"list":["a"],"big":"9","o":{"p":1}}')

    assert (fields.number("n"), fields.number("big"), fields.number("none", 7)) == (5, 9, 7)
    assert (fields.text("t"), fields.text("none"), fields.text("n")) == ("x", "", "5")
    assert (fields.flag("f"), fields.flag("none", True)) == (True, True)
    assert (fields.decimal("d"), fields.decimal("none")) == (1.5, 0.0)
    assert fields.texts("list") == ("a",)
    assert fields.object("o").number("p") == 1
    assert answer("").number("n") == 0


def test_maps_with_keys_of_java():
    fields = answer('{"q":{{"brokerName":"b","queueId":1,"topic":"T"}:3,'
                    '{"brokerName":"b","queueId":0,"topic":"T"}:4},"n":{0:5,"1":6}}')

    assert fields.offsets("q") == ((MessageQueue("T", "b", 0), 4), (MessageQueue("T", "b", 1), 3))
    assert fields.by_number("n") == {0: 5, 1: 6}


@pytest.mark.parametrize(("text", "read", "said"), [
    ("[1]", lambda fields: None, "answer of b:1: expected an object"),
    ("nonsense{", lambda fields: None, "answer of b:1"),
    ('{"n":"x"}', lambda fields: fields.number("n"), r"answer of b:1\.n: expected a number"),
    ('{"n":[]}', lambda fields: fields.number("n"), r"\.n: expected a number"),
    ('{"n":1.5}', lambda fields: fields.number("n"), r"\.n: expected a number"),
    ('{"d":"x"}', lambda fields: fields.decimal("d"), r"\.d: expected a number"),
    ('{"l":{}}', lambda fields: fields.items("l"), r"\.l: expected an array"),
    ('{"o":[]}', lambda fields: fields.object("o"), r"\.o: expected an object"),
    ('{"q":{"T":3}}', lambda fields: fields.offsets("q"), r"\.q: expected an object"),
    ('{"n":{"x":3}}', lambda fields: fields.by_number("n"), r"\.n: expected a number"),
])
def test_what_cannot_be_read_is_named(text, read, said):
    with pytest.raises(ClientError, match=said):
        read(answer(text))


def test_numbers_of_headers():
    assert header_number(Command(0, ext={"offset": "12"}), "offset", "b:1") == 12
    for ext in (None, {}, {"offset": None}, {"offset": "x"}):
        with pytest.raises(ClientError, match="b:1 answered offset="):
            header_number(Command(0, ext=ext), "offset", "b:1")


def test_times_that_are_none():
    assert when(1_700_000_000_000) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert [when(none) for none in (0, -1, 1 << 62)] == [None, None, None]


def test_settings_as_java_writes_and_reads_them():
    assert dict(settings_of(b"b=2\na=1=x\n\nnonsense\n=y\n")) == {"a": "1=x", "b": "2"}
    assert properties_text({"a b": " c\\d", "e:f": "g\nh"}) == (
        b"a\\ b=\\ c\\\\d\ne\\:f=g\\nh\n")
