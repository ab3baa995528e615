"""A long JSON text that is read in parts says the same as one that is read at once."""
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqcore.turns import finished
from mqcore.wire import fastjson, json_strict
from mqcore.wire.fastjson import DEPTH_MAX, JsonError
from mqcore.wire.json_strict import MEMBERS_MAX, SCALAR_SIZE_MAX

SCALARS = st.none() | st.booleans() | st.integers(-9, 10**12) | st.floats(
    allow_nan=False, allow_infinity=False) | st.text('ab"\\,[]{}:é \n', max_size=40)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(
    st.text('ab"\\,[]{}: 01', max_size=9), inner, max_size=6), max_leaves=40)


@pytest.fixture(autouse=True, scope="module")
def short_parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastjson, "WHOLE_SIZE_MAX", 0)
        patch.setattr(json_strict, "WHOLE_SIZE_MAX", 16)
        patch.setattr(json_strict, "_PART_SIZE", 8)
        yield


def outcome(read):
    try:
        return repr(read())
    except JsonError:
        return None


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(VALUES, st.sampled_from((None, 0, 1)), st.booleans(), st.data())
def test_texts_and_damaged_ones(value, indent, ascii_only, data):
    text = bytearray(json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode())
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(text)))
        text[at:at + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(
            (b"", b",", b"[", b"]", b"{", b"}", b":", b'"', b"1", b"1:", b"null", b" ", b"\x7f")))
    raw = bytes(text)
    assert outcome(lambda: finished(fastjson.loads_in_turns(raw))) == outcome(
        lambda: fastjson.loads(raw))


@pytest.mark.parametrize(("text", "value"), [
    (b'{"a":{0:[1,2,3,4,5,6,7,8],17:"long enough"},"b":[{"c":3}]}',
     {"a": {0: [1, 2, 3, 4, 5, 6, 7, 8], 17: "long enough"}, "b": [{"c": 3}]}),
    (b'{"a":[1,2,3,4,5,6,7,8,],}', {"a": [1, 2, 3, 4, 5, 6, 7, 8]}),
    (b'{"a":[1,2,3,4,5],"a":[6,7,8,9,10]}', {"a": [6, 7, 8, 9, 10]}),
])
def test_other_forms_and_keys_that_come_twice(text, value):
    assert finished(fastjson.loads_in_turns(text)) == value


@pytest.mark.parametrize("text", [
    b'{"key": 1[2,3,4,5,6,7,8,9]}', b'["x"[2,3,4,5,6,7,8,9]]', b"[1,2,3,4,5,6,7,8,9}",
    b'{"a":[1,2,3,4,5,6,7]} x', b'{"a":[1,2,3,4,5,6,7]', b"[[1,2,3,4,5,6,7,8] [2]]",
    b"[" * (DEPTH_MAX + 2) + b"1234567890" + b"]" * (DEPTH_MAX + 2),
])
def test_what_is_no_json_in_parts_either(text):
    with pytest.raises(JsonError):
        finished(fastjson.loads_in_turns(text))


@pytest.mark.parametrize("text", [
    b'["%s"]' % (b"x" * SCALAR_SIZE_MAX), b"[1,%s2]" % (b" " * SCALAR_SIZE_MAX),
    b'"%s"' % (b"x" * SCALAR_SIZE_MAX), b'[[[1,2,"%s"]]]' % (b"\\n" * (SCALAR_SIZE_MAX // 2)),
])
def test_no_string_is_longer_than_what_may_be_read_in_one_go(text):
    with pytest.raises(JsonError, match=f"of more than {SCALAR_SIZE_MAX} bytes"):
        finished(fastjson.loads_in_turns(text))


@pytest.mark.slow
def test_no_object_has_more_members_than_may_be_moved_in_one_go():
    text = json.dumps({str(number): 0 for number in range(MEMBERS_MAX)}).encode()
    assert len(finished(fastjson.loads_in_turns(text))) == MEMBERS_MAX
    with pytest.raises(JsonError, match=f"more than {MEMBERS_MAX} members"):
        finished(fastjson.loads_in_turns(text[:-1] + b',"one":1}'))


def test_values_are_counted_in_all_parts():
    text = json.dumps([[1, 2, 3]] * 100).encode()
    assert len(finished(fastjson.loads_in_turns(text, count_max=600))) == 100
    with pytest.raises(JsonError, match="more than 300 values"):
        finished(fastjson.loads_in_turns(text, count_max=300))


def test_a_value_that_is_let_go_is_empty():
    value = {"a": [[1, {"b": [2]}], "c"], "d": {}}
    inner = value["a"]
    finished(fastjson.dismantled(value))
    assert value == {}
    assert inner == []
