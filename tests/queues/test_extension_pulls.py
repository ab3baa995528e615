"""A running broker with an extension: whoever reads tag codes looks behind the addresses."""
import json
import time

import pytest

from mqcore.filter.bloom import BloomFilter
from mqcore.store.queue.extension_files import ADDRESS_LAST, read_unit
from mqcore.wire.records import decode_records
from tests.store.harness import read_entries
from tests.support.mqcore_process import MqcoreError, mqcore_up
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

SEND, PULL, CREATE_TOPIC, DELETE_TOPIC = 310, 11, 17, 215
END_TRANSACTION, QUERY_OFFSET = 37, 14
BLOOM = BloomFilter.for_rate()
DEADLINE_S = 60.0
TOPIC = "extended"
FILE_BYTES = 1024
COUNT = 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with mqcore_up(tmp_path_factory.mktemp("extended"), {
        "store.queue_extension_enable": True, "store.queue_extension_file_bytes": FILE_BYTES,
        "broker.filter_bits_enable": True, "broker.property_filter_enable": True,
        "broker.transaction_check_interval_ms": 100, "broker.transaction_timeout_ms": 0,
    }) as live:
        yield live


@pytest.fixture
def peer(broker):
    with Peer(broker.broker_addr) as peer:
        yield peer


def create(peer, topic, queues=1):
    assert peer.ask(CREATE_TOPIC, topic_fields(topic, queues)).code == 0


def send(peer, topic, tag, body):
    assert peer.ask(SEND, send_fields(topic, properties=f"TAGS\x01{tag}"), body).code == 0


def pull(peer, topic, tags, offset=0):
    """(bodies, next offset) of one pull that waits for what is dispatched a moment later."""
    answer = peer.ask(PULL, pull_fields(topic, offset=offset, subscription=tags, suspend_ms=5000,
                                        sys_flag=6))
    if answer.code != 0:
        return [], int(answer.ext["nextBeginOffset"])
    return [record.body for record in decode_records(answer.body)], int(
        answer.ext["nextBeginOffset"])


def pull_all(peer, topic, tags, end):
    bodies, offset = [], 0
    while offset < end:
        more, offset = pull(peer, topic, tags, offset)
        bodies += more
    return bodies


def test_pulls_filter_by_the_tags_behind_the_addresses(broker, peer):
    create(peer, TOPIC)
    for number in range(COUNT):
        send(peer, TOPIC, "even" if number % 2 == 0 else "odd", b"%d" % number)

    assert pull_all(peer, TOPIC, "even", COUNT - 1) == [
        b"%d" % number for number in range(0, COUNT, 2)]
    assert pull_all(peer, TOPIC, "odd", COUNT) == [b"%d" % number for number in range(1, COUNT, 2)]
    assert pull_all(peer, TOPIC, "*", COUNT) == [b"%d" % number for number in range(COUNT)]
    entries = read_entries(broker.store / "consumequeue" / TOPIC / "0", 0, COUNT, 20_000)
    assert all(entry[2] <= ADDRESS_LAST for entry in entries)
    assert len(list((broker.store / "consumequeue_ext" / TOPIC / "0").iterdir())) == 4


def test_a_held_pull_with_tags_is_woken_by_the_right_message_only(peer, broker):
    create(peer, "held")
    with Peer(broker.broker_addr) as sender:
        send(sender, "held", "no", b"first")
        assert pull(peer, "held", "*") == ([b"first"], 1)
        send(sender, "held", "no", b"second")
        send(sender, "held", "yes", b"third")
        assert pull_all(peer, "held", "yes", 3) == [b"third"]


def test_a_topic_that_was_removed_begins_its_extension_anew(peer, broker):
    create(peer, "again")
    for _ in range(5):
        send(peer, "again", "old", b"old")
    assert len(pull_all(peer, "again", "old", 5)) == 5
    assert peer.ask(DELETE_TOPIC, {"topic": "again"}).code == 0
    create(peer, "again")
    send(peer, "again", "new", b"new")

    assert pull_all(peer, "again", "new", 1) == [b"new"]
    [entry] = read_entries(broker.store / "consumequeue" / "again" / "0", 0, 1, 20_000)
    assert entry[2] == -(1 << 63)


def test_a_delayed_message_is_not_early(peer):
    create(peer, "late")
    sent = time.monotonic()
    assert peer.ask(SEND, send_fields("late", properties="DELAY\x011\x02TAGS\x01t"), b"x").code == 0
    assert pull_all(peer, "late", "t", 1) == [b"x"]
    assert 1.0 <= time.monotonic() - sent < 3.0


def test_a_committed_transaction_is_settled(peer):
    create(peer, "bank")
    half = send_fields("bank", sys_flag=4, properties="TRAN_MSG\x01true\x02PGROUP\x01p")
    sent = peer.ask(SEND, half, b"x")
    assert sent.code == 0
    offset = int(sent.ext["queueOffset"])
    position = int(sent.ext.get("offsetMsgId", sent.ext["msgId"])[-16:], 16)
    assert peer.ask(END_TRANSACTION, {
        "producerGroup": "p", "tranStateTableOffset": str(offset), "commitOrRollback": "8",
        "commitLogOffset": str(position), "msgId": "x", "transactionId": "x",
        "fromTransactionCheck": "false"}).code == 0
    assert pull_all(peer, "bank", "*", 1) == [b"x"]
    settled = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
               "queueId": "0"}
    deadline = time.monotonic() + DEADLINE_S
    while peer.ask(QUERY_OFFSET, settled).ext.get("offset") != str(offset + 1):
        assert time.monotonic() < deadline
    assert peer.ask(QUERY_OFFSET, settled).ext["offset"] == str(offset + 1)


def heartbeat(peer, group, topic, expression):
    now_ms = int(time.time() * 1000)
    body = {"clientID": f"{group}-client", "producerDataSet": [], "consumerDataSet": [{
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [{
            "topic": topic, "subString": expression, "subVersion": now_ms, "classFilterMode": False,
            "expressionType": "SQL92", "codeSet": [], "tagsSet": []}]}]}
    assert peer.ask(34, None, json.dumps(body).encode()).code == 0


def test_messages_have_the_bits_of_the_filters_that_they_pass(broker, peer):
    create(peer, "filtered")
    heartbeat(peer, "even", "filtered", "n = 2 OR n = 4")
    heartbeat(peer, "large", "filtered", "n > 3")
    for number in range(6):
        fields = send_fields("filtered", properties=f"n\x01{number}")
        assert peer.ask(SEND, fields, b"%d" % number).code == 0

    assert pull_filtered(peer, "even", 6) == [b"2", b"4"]
    assert pull_filtered(peer, "large", 6) == [b"4", b"5"]
    bits = {group: BLOOM.subscription_positions(group, "filtered") for group in ("even", "large")}
    entries = read_entries(broker.store / "consumequeue" / "filtered" / "0", 0, 6, 20_000)
    for number, entry in enumerate(entries):
        unit = read_unit(broker.store / "consumequeue_ext", FILE_BYTES, "filtered", 0, entry[2])
        wanted = {position for group, passes in (("even", number in (2, 4)), ("large", number > 3))
                  if passes for position in bits[group]}
        assert wanted == {at for at in range(8 * len(unit.bits))
                          if unit.bits[at // 8] >> at % 8 & 1}


def pull_filtered(peer, group, end):
    found, offset = [], 0
    while offset < end:
        fields = pull_fields("filtered", group=group, offset=offset, sys_flag=2, suspend_ms=5000)
        answer = peer.ask(PULL, fields | {"subVersion": "0", "expressionType": "SQL92"})
        assert answer.code in (0, 20), (answer.code, answer.remark)
        found += [record.body for record in decode_records(answer.body)] if answer.code == 0 else []
        offset = int(answer.ext["nextBeginOffset"])
    return found


def test_a_store_with_files_of_another_size_is_not_opened(tmp_path):
    settings = {"store.queue_extension_enable": True, "store.queue_extension_file_bytes": 4096}
    with mqcore_up(tmp_path, settings) as live, Peer(live.broker_addr) as peer:
        create(peer, "sized")
        send(peer, "sized", "t", b"x")
        assert pull_all(peer, "sized", "*", 1) == [b"x"]
    with (pytest.raises(MqcoreError, match=r"4096 bytes, expected 2048 .*extension_file_bytes"),
          mqcore_up(tmp_path, settings | {"store.queue_extension_file_bytes": 2048})):
        pass
