"""The relaxed JSON reader and the writer of Java's map forms."""
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.wire import fastjson
from mqcore.wire.fastjson import DEPTH_MAX, JsonError, ObjectKey
from tests.support import recorded

QUEUE = ObjectKey.of(brokerName="broker-a", queueId=1, topic="T")


@pytest.mark.parametrize(("text", "value"), [
    ('{0:"a",1:"b"}', {0: "a", 1: "b"}),
    ('{-5:1}', {-5: 1}),
    ('{{"brokerName":"broker-a","queueId":1,"topic":"T"}:3}', {QUEUE: 3}),
    ('{{"topic":"T","queueId":1,"brokerName":"broker-a"}:3,}', {QUEUE: 3}),
    ("{'a':'it\\'s \"x\"'}", {"a": "it's \"x\""}),
    ("{a:1,b_2:[true,false,null]}", {"a": 1, "b_2": [True, False, None]}),
    ("[1,2,]", [1, 2]),
    (' {"a" : 1 , } \n', {"a": 1}),
    ('{"a":"\\u4F60\\n\\ud83d\\ude00",}', {"a": "你\n😀"}),
    ('{"a":"\\ud83d"}', {"a": "?"}),
    ('{"a":-1.5e3,}', {"a": -1500.0}),
])
def test_the_reader_takes_what_java_peers_write(text, value):
    assert fastjson.loads(text) == value


@pytest.mark.parametrize("text", [
    "", " ", "{", "[1", "{a}", "{1}", "[1 2]", '{"a":1 "b":2}', '"abc', "{:1}", "tru", "1 2",
    '{"a":"\\q"}', '{"a":"\\u12"}', "{{}}", '{{"a":[1]}:2}', "{1e5000:1}", "[--1]", "²",
    "NaN", "'", "{'a", "[" * (DEPTH_MAX * 30), "{a:" * (DEPTH_MAX * 30), "{" * 5000,
])
def test_what_is_not_json_in_any_form_is_refused(text):
    with pytest.raises(JsonError):
        fastjson.loads(text)


def test_more_values_than_allowed_are_refused_before_they_are_made():
    with pytest.raises(JsonError):
        fastjson.loads("[" + "1," * 2000 + "1]", count_max=1000)
    with pytest.raises(JsonError):
        fastjson.loads("{" + "a:1," * 2000 + "}", count_max=1000)


@pytest.mark.parametrize(("value", "written"), [
    ({1: "b", 0: "a"}, b'{0:"a",1:"b"}'),
    ({QUEUE: 3}, b'{{"brokerName":"broker-a","queueId":1,"topic":"T"}:3}'),
    ({"b": None, "a": []}, b'{"a":[]}'),
    ({"a": "x\x01\x1f\"\\/\n你"}, '{"a":"x\\u0001\\u001F\\"\\\\/\\n你"}'.encode()),
    ({"consumeTps": 0.0, "x": {}}, b'{"consumeTps":0.0,"x":{}}'),
    ([True, None, "\ud800"], b'[true,null,"?"]'),
])
def test_the_writer_writes_java_style(value, written):
    assert fastjson.dumps(value) == written


def test_the_strict_style_quotes_keys_and_escapes_what_is_not_ascii():
    assert fastjson.dumps({0: "é😀"}, strict=True) == b'{"0":"\\u00E9\\uD83D\\uDE00"}'
    with pytest.raises(TypeError):
        fastjson.dumps({QUEUE: 1}, strict=True)


@pytest.mark.parametrize("name", recorded.NAMES)
def test_every_recorded_json_body_reads_and_writes_back_the_same(name):
    for message in recorded.messages(name):
        if message.body_text is None or message.body_text[:1] not in ("{", "["):
            continue
        value = fastjson.loads(message.body_text)
        assert fastjson.loads(fastjson.dumps(value)) == drop_nulls(value)


def drop_nulls(value):
    if isinstance(value, dict):
        return {k: drop_nulls(v) for k, v in value.items() if v is not None}
    return [drop_nulls(item) for item in value] if isinstance(value, list) else value


values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(
        st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4) | st.dictionaries(
        st.integers(-1000, 1000), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_what_is_written_reads_back(value):
    assert fastjson.loads(fastjson.dumps(value)) == value


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-9, 9)))
def test_the_strict_style_is_json(value):
    assert json.loads(fastjson.dumps(value, strict=True)) == value


@given(st.text(alphabet='{}[]":,\\\'ab01-+.eEu \n', max_size=60))
def test_arbitrary_text_is_a_value_or_a_json_error(text):
    with suppress(JsonError):
        fastjson.loads(text)
