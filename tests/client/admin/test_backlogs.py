"""The quick reader of code 317's answer gives what the reader of all forms gives, or nothing."""
from __future__ import annotations

import pytest

from mqcore.client.admin.backlogs import quick_backlogs
from mqcore.client.admin.bodies import Fields
from mqcore.client.admin.groups import QueueLag, read_stats
from mqcore.wire import fastjson

ROW = b'{"brokerOffset":7,"consumerOffset":5,"lastTimestamp":1700000000000}'
KEY = b'{"brokerName":"a","queueId":0,"topic":"T"}'


def body(*tables: bytes, group: bytes = b"g", tail: bytes = b',"totalDiff":2') -> bytes:
    return b'{"brokerAddr":"h:1","consumeStatsList":[{"%s":[%s]}]%s}' % (
        group, b",".join(b'{"consumeTps":0.5,"offsetTable":%s}' % table for table in tables), tail)


def by_all_forms(raw: bytes) -> list[tuple[str, tuple[QueueLag, ...]]]:
    found = [(str(group), tuple(read_stats(stats)[0]))
             for groups in Fields(fastjson.loads(raw), "answer").objects("consumeStatsList")
             for group in groups.members for stats in groups.objects(group)]
    return [one for one in found if one[1]]


def queue(name: str, number: int, topic: str) -> bytes:
    return b'{"brokerName":%s,"queueId":%d,"topic":%s}' % (
        fastjson.quote(name).encode(), number, fastjson.quote(topic).encode())


@pytest.mark.parametrize("raw", [
    body(b"{%s:%s}" % (KEY, ROW)),
    body(b"{%s:%s,%s:%s}" % (queue("b", 10, "T"), ROW, queue("a", 9, "T"), ROW), b"{}",
         b"{%s:{}}" % queue("broker \N{SNOWMAN}", 0, "%RETRY%g")),
    body(b"{%s:%s}" % (KEY, ROW.replace(b"1700000000000", b"0"))),
    body(b"{%s:%s}" % (KEY, ROW.replace(b"1700000000000", b"9223372036854775807"))),
    body(b"{%s:%s}" % (KEY, ROW), group=b'x{\\"brokerName\\":'),
    body(tail=b""), b'{"brokerAddr":"h:1"}',
])
def test_bodies_in_the_form_of_brokers_are_read_as_all_forms_are(raw: bytes) -> None:
    found = quick_backlogs(raw)

    assert found is not None
    assert found == by_all_forms(raw)


@pytest.mark.parametrize("raw", [
    b"", b"[]", b"\xff", body(b"{%s:%s" % (KEY, ROW)), body(b"{%s:7}" % KEY),
    body(b"{%s:%s}" % (KEY.replace(b'"', b"'"), ROW)),                      # other quotes
    body(b'{{"queueId":0,"brokerName":"a","topic":"T"}:%s}' % ROW),         # another order
    body(b"{%s:%s}" % (queue('a"b', 0, "T"), ROW)),                         # a quote in a name
    body(b"{%s:%s}" % (queue("a\x7f1\x7fb", 0, "T"), ROW)),                 # the reader's own mark
    body(b'{"plain":%s}' % ROW), body(b"null"), b'{"consumeStatsList":[{"g":null}]}',
    b"[" * 100_000,
])
def test_any_other_body_is_left_to_the_reader_of_all_forms(raw: bytes) -> None:
    assert quick_backlogs(raw) is None
