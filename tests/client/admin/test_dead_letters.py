"""Dead letters: listed, and sent again to the group alone or to its topic."""
from __future__ import annotations

import pytest

from mqcore.client import ConfigError, PushConsumer
from tests.client.admin.conftest import SEND_BACK, queue, store, unique
from tests.interop.ask import ask
from tests.support.waiting import wait_until


@pytest.fixture
def dead(admin, place, topic):
    """A group that gave up two messages of a topic."""
    group = unique("Group")
    admin.create_group(group)
    admin.create_topic(f"%RETRY%{group}", queues=1)
    for sent in store(admin, topic, "first", "second", tags="T", keys=["k"]):
        answer = ask(place.broker_addr, SEND_BACK, {
            "offset": str(int(sent.offset_message_id[-16:], 16)), "group": group,
            "delayLevel": "-1", "originMsgId": sent.message_id, "originTopic": topic,
            "unitMode": "false", "maxReconsumeTimes": "16"})
        assert answer.code == 0, answer.remark
    wait_until(lambda: len(admin.dead_letters(group)) == 2, "two dead letters")
    return group


def test_dead_letters_say_where_they_came_from(admin, dead, topic):
    letters = admin.dead_letters(dead)

    assert [(letter.message.body, letter.topic, letter.group) for letter in letters] == [
        (b"first", topic, dead), (b"second", topic, dead)]
    assert letters[0].message.queue.topic == f"%DLQ%{dead}"
    assert (letters[0].message.tags, letters[0].message.keys) == ("T", ["k"])
    cut = admin.dead_letters(dead, count=1)
    assert (len(cut), cut.more) == (1, True)
    assert list(admin.dead_letters(dead, end="1h ago")) == []


def test_a_group_without_dead_letters_has_none(admin):
    assert list(admin.dead_letters(unique("Group"))) == []


def test_a_dead_letter_comes_to_its_group_again_and_to_nobody_else(admin, place, dead, topic):
    for queue_id, end in ((0, 2), (1, 0)):
        admin.set_offset(dead, queue(topic, queue_id), end)
    resent = admin.resend_dead_letters(dead, admin.dead_letters(dead)[:1])
    assert [each.error for each in resent] == [None]
    assert resent[0].result.queue.topic == f"%RETRY%{dead}"
    admin.set_offset(dead, queue(f"%RETRY%{dead}"), 0)

    got = []
    with PushConsumer(dead, topic, got.append, namesrv=place.namesrv_addr):
        wait_until(lambda: got, "the message comes again")
    assert [(message.body, message.topic, message.tags, message.reconsume_times)
            for message in got] == [(b"first", topic, "T", 0)]
    assert admin.topic_stats(topic).message_count == 2


def test_dead_letters_go_to_their_topic(admin, dead, topic):
    resent = admin.resend_dead_letters(dead, admin.dead_letters(dead), to="topic")

    assert [each.result.queue.topic for each in resent] == [topic, topic]
    wait_until(lambda: admin.topic_stats(topic).message_count == 4, "two messages more")
    copies = [admin.message(each.result.offset_message_id) for each in resent]
    assert [copy.body for copy in copies] == [b"first", b"second"]
    assert [copy.message_id for copy in copies] == [
        each.letter.message.message_id for each in resent]
    assert "RETRY_TOPIC" not in copies[0].properties


def test_letters_of_another_group_are_refused(admin, dead):
    letters = admin.dead_letters(dead)
    with pytest.raises(ConfigError, match="letters: expected dead letters of group"):
        admin.resend_dead_letters(unique("Other"), letters)
    with pytest.raises(ConfigError, match="to 'everybody'"):
        admin.resend_dead_letters(dead, letters, to="everybody")
