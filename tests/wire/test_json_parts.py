"""A long JSON text that is read in parts says the same as one that is read at once."""
import json
import math

import pytest

from mqcore.turns import finished
from mqcore.wire import fastjson, json_strict
from mqcore.wire.fastjson import DEPTH_MAX, JsonError
from mqcore.wire.json_strict import MEMBERS_MAX, SCALAR_SIZE_MAX
from tests.support.dice import dice, real, text, times, whole

DEPTH = 4
PIECES = (b"", b",", b"[", b"]", b"{", b"}", b":", b'"', b"1", b"1:", b"null", b" ", b"\x7f")


def finite(dice):
    found = real(dice)
    return found if math.isfinite(found) else 0.0


SCALARS = (lambda dice: None, lambda dice: dice.random() < 0.5,
           lambda dice: whole(dice, -9, 10**12), finite,
           lambda dice: text(dice, 40, 'ab"\\,[]{}:é \n'))


def any_value(dice, depth=DEPTH):
    kind = dice.randrange(5) if depth else 0
    if kind < 2:
        return dice.choice(SCALARS)(dice)
    inner = [any_value(dice, depth - 1) for _ in range(dice.randint(0, 6))]
    return inner if kind == 2 else {text(dice, 9, 'ab"\\,[]{}: 01'): one for one in inner}


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


def test_texts_and_damaged_ones():
    cases = dice()
    for _ in range(times(1000)):
        raw = bytearray(json.dumps(any_value(cases), indent=cases.choice((None, 0, 1)),
                                   ensure_ascii=cases.random() < 0.5).encode())
        for _ in range(cases.randint(0, 2)):
            at = cases.randint(0, len(raw))
            raw[at:at + cases.randint(0, 2)] = cases.choice(PIECES)
        written = bytes(raw)
        assert outcome(lambda: finished(fastjson.loads_in_turns(written))) == outcome(   # noqa: B023
            lambda: fastjson.loads(written)), written                                    # noqa: B023


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
