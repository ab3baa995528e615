"""Half messages: listed, looked at, asked about again, rolled back."""
from __future__ import annotations

import time

import pytest

from mqcore.client import ClientError, ConfigError
from mqcore.client.admin.transactions import CHECK_GROUP, CHECK_TIMES, HALF_TOPIC, OP_TOPIC
from mqcore.wire.ids import offset_message_id
from mqcore.wire.properties import encode_properties
from tests.client.admin.conftest import BROKER_NAME, unique
from tests.interop.ask import ask
from tests.support.waiting import wait_until

SEND = 310


@pytest.fixture
def prepare(place, admin, topic):
    """Sends half messages of a topic; returns the broker's id of each when the queue has it."""
    def run(body=b"half", keys="k1 k2"):
        unique_key = unique("KEY")
        text = encode_properties({"TRAN_MSG": "true", "PGROUP": "TxGroup", "WAIT": "true",
                                  "UNIQ_KEY": unique_key, "KEYS": keys})
        answer = ask(place.broker_addr, SEND, {
            "a": "TxGroup", "b": topic, "c": "TBW102", "d": "4", "e": "1", "f": "4",
            "g": str(time.time_ns() // 1_000_000), "h": "0", "i": text, "j": "0", "k": "false",
            "m": "false", "n": BROKER_NAME}, body)
        assert answer.code == 0, answer.remark
        message_id = str((answer.ext or {})["msgId"])
        wait_until(lambda: message_id in pending(admin), "the half message in its queue")
        return message_id, unique_key

    return run


def pending(admin):
    return {half.message_id: half for half in admin.pending_transactions(BROKER_NAME)}


@pytest.mark.slow
def test_a_half_message_is_pending(admin, place, prepare, topic):
    message_id, unique_key = prepare()

    half = pending(admin)[message_id]
    assert (half.state, half.unique_key, half.producer_group, half.topic, half.queue_id) == (
        "pending", unique_key, "TxGroup", topic, 1)
    assert (half.keys, half.checks, half.body) == (("k1", "k2"), 0, b"half")
    assert half.born.tzinfo is not None
    assert admin.transaction(message_id) == half
    assert admin.transaction(message_id, broker=place.broker_addr) == half


def test_a_limit_says_that_there_are_more(admin, prepare):
    prepare()
    prepare()

    found = admin.pending_transactions(BROKER_NAME, limit=1)
    assert (len(found), found.more) == (1, True)


def test_a_half_message_is_rolled_back(admin, prepare):
    message_id, _ = prepare()

    assert admin.roll_back_transaction(message_id).state == "pending"
    wait_until(lambda: message_id not in pending(admin), "the half message settled")
    assert admin.transaction(message_id).state == "settled"
    with pytest.raises(ClientError, match="is not pending"):
        admin.roll_back_transaction(message_id)
    with pytest.raises(ClientError, match="is settled"):
        admin.resume_transaction(message_id)


def test_a_half_message_is_asked_about_again(admin, prepare):
    message_id, unique_key = prepare(b"again")

    assert admin.resume_transaction(message_id).message_id == message_id

    def replaced():
        found = [half for half in pending(admin).values() if half.unique_key == unique_key]
        return len(found) == 1 and found[0].message_id != message_id and found[0]
    wait_until(replaced, "a fresh half message in its place")
    assert replaced().body == b"again"
    assert replaced().checks == 0


def test_an_id_that_is_none(admin, place):
    with pytest.raises(ConfigError, match="message_id"):
        admin.transaction("KEY-1")
    host, port = place.broker_addr.split(":")
    with pytest.raises(ClientError) as raised:
        admin.transaction(offset_message_id(host, int(port), 1 << 40))
    assert raised.value.code == 208


def test_the_names_of_the_brokers_queues_are_the_brokers():
    from mqcore.broker.requests import check_sender, transaction
    from mqcore.wire import codes

    assert (HALF_TOPIC, OP_TOPIC, CHECK_GROUP, CHECK_TIMES) == (
        codes.HALF_TOPIC, codes.OP_TOPIC, check_sender.GROUP, transaction.CHECK_TIMES)
