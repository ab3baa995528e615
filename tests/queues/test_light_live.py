"""Light queues on a running broker: sent once, pulled from each, waited for, offsets kept."""
import json
import re
import shutil

import pytest

from mqcore.wire.records import decode_records
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

SEND, PULL, CREATE_TOPIC, DELETE_TOPIC = 310, 11, 17, 215
QUERY_OFFSET, UPDATE_OFFSET, MAX_OFFSET, CLEAN_UNUSED = 14, 15, 30, 316
PARENT = "parent"
SETTINGS = {"store.multi_dispatch_enable": True, "store.light_queues_enable": True,
            "store.light_queue_count_max": 50, "broker.offsets_persist_interval_ms": 100}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with mqcore_up(tmp_path_factory.mktemp("light"), SETTINGS) as live:
        with Peer(live.broker_addr) as peer:
            assert peer.ask(CREATE_TOPIC, topic_fields(PARENT, 4)).code == 0
        yield live


@pytest.fixture
def peer(broker):
    with Peer(broker.broker_addr) as peer:
        yield peer


def send(peer, names, body, *, queue=0, topic=PARENT, **changes):
    properties = f"TAGS\x01t\x02INNER_MULTI_DISPATCH\x01{names}" if names else "TAGS\x01t"
    fields = send_fields(topic, queue_id=queue, properties=properties, **changes)
    return peer.ask(SEND, fields, body)


def pull(peer, topic, offset=0, *, group="%LMQ%group", queue=0, **changes):
    return peer.ask(PULL, pull_fields(topic, offset=offset, group=group, queue_id=queue,
                                      suspend_ms=5000, **{"sys_flag": 6} | changes))


def bodies(answer):
    assert answer.code == 0, (answer.code, answer.remark)
    return [record.body for record in decode_records(answer.body)]


def test_a_message_is_pulled_from_its_own_queue_and_from_each_that_it_names(peer):
    answer = send(peer, "%LMQ%a1,%LMQ%b1", b"one", queue=2)
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "2", "0")
    for topic, queue in ((PARENT, 2), ("%LMQ%a1", 0), ("%LMQ%b1", 0)):
        assert bodies(pull(peer, topic, queue=queue)) == [b"one"]
    [record] = decode_records(pull(peer, "%LMQ%a1").body)
    assert (record.topic, record.queue_id, record.queue_offset) == (PARENT, 2, 0)
    assert record.properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0"


def test_a_light_queue_collects_from_many_topics_and_queues(peer):
    assert peer.ask(CREATE_TOPIC, topic_fields("second", 2)).code == 0
    for number in range(20):
        topic = PARENT if number % 3 else "second"
        assert send(peer, "%LMQ%all", b"%d" % number, queue=number % 2, topic=topic).code == 0
    seen, offset = [], 0
    while offset < 20:
        answer = pull(peer, "%LMQ%all", offset)
        seen += bodies(answer)
        offset = int(answer.ext["nextBeginOffset"])
    assert seen == [b"%d" % number for number in range(20)]
    assert peer.ask(MAX_OFFSET, {"topic": "%LMQ%all", "queueId": "0"}).ext["offset"] == "20"


def test_a_pull_that_waits_for_a_light_queue_is_woken_also_for_its_first_message(broker, peer):
    with Peer(broker.broker_addr) as sender:
        for number in range(2):
            peer.send(_encoded(pull_fields("%LMQ%wait", offset=number, group="%LMQ%group",
                                           sys_flag=6, suspend_ms=9000)))
            assert peer.silent_for(0.05)
            assert send(sender, "%LMQ%wait", b"woken").code == 0
            assert bodies(peer.receive(2)) == [b"woken"]


def _encoded(fields):
    from mqcore.wire.command import encode, request
    return encode(request(PULL, fields))


def test_ordinary_groups_pull_light_queues_too(peer):
    assert send(peer, "%LMQ%plain", b"x").code == 0
    assert bodies(pull(peer, "%LMQ%plain", group="ordinary")) == [b"x"]


def test_only_queue_0_of_a_light_topic_is_there(peer):
    assert pull(peer, "%LMQ%a1", queue=1).code == 1


def test_a_message_may_be_sent_to_a_light_topic_itself(peer):
    assert send(peer, "", b"direct", topic="%LMQ%direct").code == 0
    assert bodies(pull(peer, "%LMQ%direct")) == [b"direct"]


def test_delayed_messages_reach_the_light_queue_when_they_are_delivered(peer):
    properties = "INNER_MULTI_DISPATCH\x01%LMQ%late\x02DELAY\x011"
    assert peer.ask(SEND, send_fields(PARENT, properties=properties), b"late").code == 0
    assert peer.ask(MAX_OFFSET, {"topic": "%LMQ%late", "queueId": "0"}).ext["offset"] == "0"
    assert bodies(pull(peer, "%LMQ%late")) == [b"late"]


@pytest.mark.parametrize("names", [
    "%LMQ%../../up", ".", "%LMQ%fine2,a/b", ",".join(f"%LMQ%toomany{n}" for n in range(60))],
    ids=["a path", "a dot", "one of two", "too many"])
def test_a_delayed_message_that_names_what_cannot_be_comes_to_its_own_queue(peer, names):  # M4
    start = int(peer.ask(MAX_OFFSET, {"topic": PARENT, "queueId": "1"}).ext["offset"])
    properties = f"INNER_MULTI_DISPATCH\x01{names}\x02DELAY\x011"
    assert peer.ask(SEND, send_fields(PARENT, queue_id=1, properties=properties), b"x").code == 0
    assert bodies(pull(peer, PARENT, start, queue=1, group="plain")) == [b"x"]
    assert send(peer, "%LMQ%after", b"on it goes", queue=1).code == 0


def test_a_batch_is_in_its_own_queue_only(peer):
    item = b"body"
    properties = b"INNER_MULTI_DISPATCH\x01%LMQ%batch"
    one = ((4 * 5 + 2 + len(item) + len(properties)).to_bytes(4, "big") + bytes(12)
           + len(item).to_bytes(4, "big") + item + len(properties).to_bytes(2, "big") + properties)
    assert peer.ask(320, send_fields(PARENT, queue_id=3, batch=True), one + one).code == 0
    assert len(bodies(pull(peer, PARENT, queue=3))) == 2
    assert peer.ask(MAX_OFFSET, {"topic": "%LMQ%batch", "queueId": "0"}).ext["offset"] == "0"


def test_more_light_queues_than_allowed_are_refused_with_stocks_remark(peer):
    names = ",".join(f"%LMQ%many{number}" for number in range(60))
    answer = send(peer, names, b"x")
    assert answer.code == 1
    assert answer.remark.startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]")


def test_a_name_with_a_slash_is_refused(peer):
    answer = send(peer, "%LMQ%../../up", b"x")
    assert (answer.code, answer.remark.startswith("the message is illegal")) == (13, True)


def offsets_file(broker):
    text = (broker.store / "config" / "lmqConsumerOffset.json").read_text()
    return json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', text))


def test_offsets_and_messages_outlive_the_broker_and_topics_are_never_configured(tmp_path):
    with mqcore_up(tmp_path, SETTINGS) as broker, Peer(broker.broker_addr) as peer:
        assert peer.ask(CREATE_TOPIC, topic_fields(PARENT, 4)).code == 0
        pull(peer, PARENT, group="ordinary", sys_flag=4)                # a group to be configured
        assert send(peer, "%LMQ%kept", b"before").code == 0
        assert bodies(pull(peer, "%LMQ%kept", group="%LMQ%g")) == [b"before"]
        pull(peer, "%LMQ%kept", 0, group="%LMQ%g", sys_flag=7, commit_offset=1)
        fields = {"consumerGroup": "%LMQ%h", "topic": "%LMQ%kept", "queueId": "0"}
        assert peer.ask(UPDATE_OFFSET, fields | {"commitOffset": "1"}).code == 0
        assert peer.ask(QUERY_OFFSET, fields).ext["offset"] == "1"
        assert peer.ask(CLEAN_UNUSED).code == 0
        assert bodies(pull(peer, "%LMQ%kept", group="%LMQ%g")) == [b"before"]
    assert offsets_file(broker)["lmqOffsetTable"] == {"%LMQ%kept@%LMQ%g": 1, "%LMQ%kept@%LMQ%h": 1}
    for name in ("topics.json", "subscriptionGroup.json"):
        assert "%LMQ%" not in (broker.store / "config" / name).read_text()

    with mqcore_up(tmp_path, SETTINGS) as again, Peer(again.broker_addr) as peer:
        assert peer.ask(QUERY_OFFSET, fields).ext["offset"] == "1"
        assert send(peer, "%LMQ%kept", b"after").code == 0
        assert bodies(pull(peer, "%LMQ%kept", 1, group="%LMQ%g")) == [b"after"]
        assert peer.ask(DELETE_TOPIC, {"topic": "%LMQ%kept"}).code == 0
        assert peer.ask(MAX_OFFSET, {"topic": "%LMQ%kept", "queueId": "0"}).ext["offset"] == "0"
        assert send(peer, "%LMQ%kept", b"anew").code == 0
        assert bodies(pull(peer, "%LMQ%kept", group="%LMQ%g")) == [b"anew"]


def test_a_light_queue_that_was_lost_at_rest_is_built_again(tmp_path):
    lost = {"topic": "%LMQ%lost", "queueId": "0"}
    with mqcore_up(tmp_path, SETTINGS) as first, Peer(first.broker_addr) as peer:
        assert peer.ask(CREATE_TOPIC, topic_fields(PARENT, 4)).code == 0
        for number in range(10):
            assert send(peer, "%LMQ%lost,%LMQ%kept", b"%d" % number).code == 0
        wait_until(lambda: peer.ask(MAX_OFFSET, lost).ext["offset"] == "10", "all are dispatched")
    shutil.rmtree(first.store / "consumequeue" / "%LMQ%lost")

    with mqcore_up(tmp_path, SETTINGS) as again, Peer(again.broker_addr) as peer:
        assert send(peer, "%LMQ%lost", b"10").code == 0
        assert bodies(pull(peer, "%LMQ%lost", 10)) == [b"10"]
        assert bodies(pull(peer, "%LMQ%lost")) == [b"%d" % number for number in range(11)]
        assert bodies(pull(peer, "%LMQ%kept")) == [b"%d" % number for number in range(10)]
        assert peer.ask(MAX_OFFSET, lost).ext["offset"] == "11"
