"""Traces: what a Java producer with tracing tells is read as mqadmin reads it."""
from __future__ import annotations

import pytest

from mqcore.client.admin.traces import _trace
from tests.client.admin.conftest import store, unique
from tests.support.waiting import wait_until

ID, REQUEST = "0A000007", "0A0000FF"


def test_a_traced_send_is_found(admin, mqadmin, topic):
    group = unique("Traced")
    mqadmin.ask("producer", group, "traced")
    try:
        sent = mqadmin.send(group, topic, 0, "tracekey", "body")
        wait_until(lambda: admin.trace(sent["key"]).sends, "the trace of the send")
        (send,) = admin.trace(sent["key"]).sends
        assert (send.group, send.topic, send.tags, send.keys, send.success) == (
            group, topic, "TagA", ("tracekey",), True)
        assert (send.body_size, admin.trace(sent["key"]).consumes) == (4, ())
        assert 0 <= send.took < 10
        text = mqadmin.run("queryMsgTraceById", "-i", sent["key"])
        assert group in text
        assert send.client in text
    finally:
        mqadmin.ask("stop", group)


def test_an_id_without_a_trace(admin, mqadmin, topic):
    assert admin.trace(unique("NONE")).sends == ()


@pytest.mark.parametrize("after", [True, False])
def test_records_are_put_together(admin, topic, after):
    records = [
        f"Pub|1700000000000|DefaultRegion|PG|T|{ID}|null|k1 k2|10.0.0.7:10911|5|3|0|0A00|true#",
        f"SubBefore|1700000001000|null|CG|{REQUEST}|{ID}|2|k1#",
        f"SubAfter|{REQUEST}|{ID}|40|false|k1|2|1700000001040|CG#" if after else "",
        f"EndTransaction|1700000002000|R|PG|T|{ID}|null|k|10.0.0.7:10911|2|TX|COMMIT_MESSAGE|true#",
        "Pub|1|R|PG|T|OTHER|a|b|h|1|1|0|x|true#", "nonsense|#",
    ]
    body = "".join(records).replace("|", "\x01").replace("#", "\x02")
    (sent,) = store(admin, topic, body)
    trace = _trace(ID, [admin.message(sent.offset_message_id)], ())

    (send,) = trace.sends
    assert (send.group, send.topic, send.tags, send.keys, send.broker, send.body_size,
            send.took, send.success) == (
        "PG", "T", "", ("k1", "k2"), "10.0.0.7:10911", 5, 0.003, True)
    (consume,) = trace.consumes
    assert (consume.group, consume.retries) == ("CG", 2)
    assert (consume.success, consume.outcome, consume.took) == (
        (False, "EXCEPTION", 0.04) if after else (None, "", 0.0))
    (end,) = trace.ends
    assert (end.state, end.from_check) == ("COMMIT_MESSAGE", True)
