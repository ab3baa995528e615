"""Messages: found by id, key, offset and time; entries of queues; who consumed one."""
from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mqcore.client import ClientError, ConfigError, PushConsumer
from mqcore.client.admin import TrackState, messages
from mqcore.wire.ids import offset_message_id
from tests.client.admin.conftest import BROKER_NAME, queue, store, unique
from tests.interop.mqadmin import fields, rows
from tests.support.waiting import wait_until


def wait_indexed(admin, topic, key):
    wait_until(lambda: admin.query(topic, key), f"key {key} in the index")


def test_a_message_is_found_by_both_its_ids(admin, topic):
    (sent,) = store(admin, topic, "hello", tags="TagA", keys=["k1", "k2"],
                    properties={"colour": "grün"})
    wait_indexed(admin, topic, "k1")

    found = admin.message(sent.offset_message_id)
    assert (found.topic, found.body, found.tags, found.keys, found.properties["colour"]) == (
        topic, b"hello", "TagA", ["k1", "k2"], "grün")
    assert (found.queue, found.queue_offset) == (queue(topic), 0)
    assert found.message_id == sent.message_id
    again = admin.message(sent.offset_message_id, topic=topic)
    assert again.offset_message_id == found.offset_message_id
    by_key = admin.message(sent.message_id, topic=topic)
    assert (by_key.body, by_key.offset_message_id) == (b"hello", sent.offset_message_id)


def test_a_message_that_is_not_there(admin, place, topic):
    host, port = place.broker_addr.split(":")
    for message_id in (offset_message_id(host, int(port), 1 << 40),):
        with pytest.raises(ClientError, match="no message") as raised:
            admin.message(message_id)
        assert raised.value.code == 208
    with pytest.raises(ClientError) as raised:
        admin.message("AC11000200000000000000000000BEEF", topic=topic)
    assert raised.value.code == 208
    with pytest.raises(ConfigError, match="message_id"):
        admin.message("no id at all")


def test_messages_are_found_by_key_and_time(admin, topic):
    store(admin, topic, "one", "two", keys=["shared"])
    store(admin, topic, "three", queue_id=1, keys=["shared", "own"])
    wait_until(lambda: len(admin.query(topic, "shared")) == 3, "three messages in the index")

    assert [message.body for message in admin.query(topic, "shared")] == [b"one", b"two", b"three"]
    assert [message.body for message in admin.query(topic, "own")] == [b"three"]
    assert list(admin.query(topic, "nobody")) == []
    cut = admin.query(topic, "shared", count=1)
    assert (len(cut), cut.more) == (1, True)
    future = datetime.now(UTC) + timedelta(hours=1)
    assert list(admin.query(topic, "shared", begin=future)) == []
    assert list(admin.query(topic, "shared", end="1h ago")) == []


def test_keys_and_ids_are_mqadmins(admin, mqadmin, topic):
    (sent,) = store(admin, topic, "asked twice", tags="TagB", keys=["both"])
    wait_indexed(admin, topic, "both")

    table = rows(mqadmin.run("queryMsgByKey", "-t", topic, "-k", "both"), "#Message ID")
    (found,) = admin.query(topic, "both")
    assert table == [[found.message_id, str(found.queue.queue_id), str(found.queue_offset)]]
    shown = fields(mqadmin.run("queryMsgById", "-i", sent.offset_message_id))
    assert shown["Topic"] == found.topic
    assert shown["Tags"].strip("[]") == found.tags
    assert int(shown["Queue Offset"]) == found.queue_offset
    assert int(shown["CommitLog Offset"]) == found.commit_log_offset


def test_a_message_at_an_offset(admin, topic):
    store(admin, topic, "zero", "one")

    assert admin.message_at(queue(topic), 1).body == b"one"
    for offset in (2, 1_000):
        with pytest.raises(ClientError, match=f"no message at offset {offset}"):
            admin.message_at(queue(topic), offset)


def test_a_topic_is_read_without_a_group(admin, topic):
    store(admin, topic, *(f"first {number}" for number in range(40)), tags="A")
    store(admin, topic, "second", queue_id=1, tags="B")

    everything = admin.read(topic)
    assert [message.body for message in everything][-1] == b"second"
    assert (len(everything), everything.more, everything.unreachable) == (41, False, ())
    assert [message.body for message in admin.read(topic, expression="B")] == [b"second"]
    assert len(admin.read(topic, queue_id=1)) == 1
    cut = admin.read(topic, count=35)
    assert (len(cut), cut.more) == (36, True)
    assert list(admin.read(topic, begin=datetime.now(UTC) + timedelta(minutes=1))) == []
    assert list(admin.read(topic, end="1h ago")) == []
    assert len(admin.read(topic, begin="1h ago", end="now")) == 41


def test_a_read_of_large_bodies_is_cut_and_skips_none(admin, topic, monkeypatch):
    monkeypatch.setattr(messages.Messages, "read_bytes_max", 4_000)     # 2,000 for each queue
    store(admin, topic, *(f"{number}" * 900 for number in range(4)))
    store(admin, topic, "small", queue_id=1)
    cut = admin.read(topic)
    first = [message for message in cut if message.queue.queue_id == 0]
    assert ([message.body[:1] for message in first], cut.more) == ([b"0", b"1"], True)
    # "small" came after the messages that lack, so it waits for them
    assert all(message.store_timestamp_ms <= first[-1].store_timestamp_ms for message in cut)
    rest = admin.read(topic, begin=datetime.fromtimestamp(
        cut[-1].store_timestamp_ms / 1000, UTC))
    assert rest[0].store_timestamp_ms <= cut[-1].store_timestamp_ms
    monkeypatch.setattr(messages.Messages, "read_bytes_max", 8)         # less than a single message
    assert [message.body[:1] for message in admin.read(topic, queue_id=0)] == [b"0"]


def test_reading_shows_what_mqadmin_prints(admin, mqadmin, topic):
    store(admin, topic, "printed one", "printed two")

    text = mqadmin.run("printMsg", "-t", topic)
    for message in admin.read(topic):
        assert message.message_id in text
        assert message.body.decode() in text


def test_entries_of_a_queue(admin, topic):
    sent = store(admin, topic, "a", "bb", tags="TagA")

    found = admin.queue_entries(queue(topic), 0, 10)
    assert (found.min_offset, found.max_offset, len(found.entries)) == (0, 2, 2)
    assert [entry.offset for entry in found.entries] == [0, 1]
    message = admin.message(sent[1].offset_message_id)
    assert (found.entries[1].log_position, found.entries[1].size) == (
        message.commit_log_offset, message.store_size)
    assert found.entries[0].tag_code == 2598919
    assert found.entries[0].matches is None
    assert admin.queue_entries(queue(topic), 100).entries == ()
    assert admin.queue_entries(queue(topic), 0, broker=BROKER_NAME) == found


def test_entries_are_mqadmins(admin, mqadmin, place, topic):
    store(admin, topic, "a", "b")

    text = mqadmin.run("queryCq", "-t", topic, "-q", 0, "-i", 0, "-c", 2, "-b", place.broker_addr)
    for entry in admin.queue_entries(queue(topic), 0, 2).entries:
        assert f"physicOffset={entry.log_position}, physicSize={entry.size}" in text


def test_who_consumed_a_message(admin, member, topic):
    group, other = unique("Group"), unique("Other")
    store(admin, topic, "seen")
    with member(group, topic):
        wait_until(lambda: admin.committed(group, queue(topic)) == 1, "the message consumed")
        (later,) = store(admin, topic, "not seen", queue_id=1)
        admin.set_offset(other, queue(topic), 1)

        seen = admin.message_at(queue(topic), 0)
        states = {track.group: track.state for track in admin.consumed_by(seen)}
        assert states == {group: TrackState.CONSUMED, other: TrackState.NOT_ONLINE}
        unseen = admin.message_at(queue(topic, 1), later.queue_offset)
        assert admin.consumed_by(unseen)[0].state in (
            TrackState.NOT_CONSUMED_YET, TrackState.CONSUMED)


def test_a_message_that_a_filter_left_out(admin, place, topic):
    group = unique("Group")
    store(admin, topic, "other", tags="A")
    store(admin, topic, "wanted", tags="B")

    def listen(message):
        """Takes everything."""

    with PushConsumer(group, {topic: "B"}, listen, namesrv=place.namesrv_addr, start="earliest",
                      persist_interval=0.2):
        wait_until(lambda: admin.committed(group, queue(topic)) == 2, "both passed")
        states = [admin.consumed_by(admin.message_at(queue(topic), offset))[0].state
                  for offset in (0, 1)]
    assert states == [TrackState.CONSUMED_BUT_FILTERED, TrackState.CONSUMED]


def test_a_message_is_handed_to_a_member(admin, mqadmin, topic):
    group = unique("Group")
    (sent,) = store(admin, topic, "handed")
    mqadmin.ask("consumer", group, topic)
    try:
        wait_until(lambda: admin.members(group).members, "the member")
        (client,) = admin.members(group).members
        result = admin.consume_directly(group, client.client_id, sent.offset_message_id)
        assert (result.result, result.order, result.remark) == ("CR_SUCCESS", False, "")
        assert 0 <= result.took < 10
    finally:
        mqadmin.ask("stop", group)


def test_a_message_is_sent_again(admin, topic):
    (sent,) = store(admin, topic, "x" * 5_000, tags="T", keys=["k"])

    again = admin.resend(admin.message(sent.offset_message_id))
    copy = admin.message(again.offset_message_id)
    assert (copy.topic, copy.body, copy.tags, copy.keys) == (topic, b"x" * 5_000, "T", ["k"])
    assert copy.message_id == sent.message_id
    assert again.offset_message_id != sent.offset_message_id


def test_sends_are_timed(admin, topic):
    times = admin.send_times(topic, count=4, size=64)

    assert {each.queue for each in times} == {queue(topic, 0), queue(topic, 1)}
    assert len(times) == 4
    assert all(each.error is None and 0 < each.took < 5 for each in times)
