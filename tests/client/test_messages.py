"""What a message to send and the result of its send are, whatever was looked at before."""
import copy
import dataclasses
import gc
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.client import (
    LocalTransactionState,
    Message,
    MessageQueue,
    SendResult,
    SendStatus,
    TransactionSendResult,
)
from mqcore.client.native.messages import results_of
from mqcore.client.native.sends import KeySource, batch_body, batch_item_size
from mqcore.client.produce.producer import assign_message_id
from mqcore.wire.records import BatchItem, encode_batch

QUEUE = MessageQueue("T", "b", 3)
TEXT = st.none() | st.text(
    st.characters(blacklist_characters="\x01\x02", blacklist_categories=("Cs",)), max_size=20)
NOW_MS = 1_700_000_000_000


@given(tags=TEXT, keys=TEXT, waits=st.booleans(), has_id=st.booleans(), body=st.binary(max_size=9))
def test_a_message_is_encoded_alike_before_and_after_its_properties_were_looked_at(
        tags, keys, waits, has_id, body):
    message = Message("T", body, tags=tags, keys=keys, wait_store=waits)
    if has_id:
        KeySource().give(message, NOW_MS)
    before, size = batch_body([message], 0, 1, 1 << 20), batch_item_size(message)
    seen = message.tags, message.keys, message.wait_store, message.unique_key, message.delay_level
    item = BatchItem(body, message.properties, 0)
    assert before == batch_body([message], 0, 1, 1 << 20) == (encode_batch([item]), 1)
    assert size == batch_item_size(message) == len(before[0])
    assert seen == (message.tags, message.keys, message.wait_store, message.unique_key, 0)
    assert seen[:3] == (tags or None, (keys or "").split(), waits)


def test_properties_are_one_dict_that_may_be_changed():
    message = Message("T", "x", tags="a")
    message.properties["TAGS"] = "b"
    message.set_property("own", "c")
    assert message.tags == "b"
    assert message.user_properties == {"own": "c"}
    assert assign_message_id(message) == message.properties["UNIQ_KEY"] == message.unique_key
    message.properties = {"TAGS": "d"}
    assert (message.tags, message.unique_key, message.wait_store) == ("d", None, True)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_messages_and_results_copy_and_pickle_whole(copied):
    message = Message("T", "x", tags="a", keys=["k", "l"], flag=7, properties={"own": "c"})
    other = copied(message)
    assert type(other) is Message
    assert (other.topic, other.body, other.flag, other.properties) == (
        "T", b"x", 7, message.properties)
    other.set_property("own", "d")
    assert message.properties["own"] == "c"
    result = SendResult(SendStatus.SEND_OK, "id", "oid", QUEUE, 5, is_traced=False)
    assert copied(result) == result
    decided = TransactionSendResult(SendStatus.SEND_OK, "id", "oid", QUEUE, 5,
                                    local_state=LocalTransactionState.COMMIT)
    assert copied(decided) == decided


def test_a_pickle_of_a_message_says_nothing_of_how_native_code_is_compiled():
    assert b"_native" not in pickle.dumps(Message("T", "x"))


def test_the_result_of_a_send_is_a_dataclass():
    result = SendResult(SendStatus.SEND_OK, "id", "oid", QUEUE, 5)
    assert dataclasses.replace(result, queue_offset=6).queue_offset == 6
    assert dataclasses.asdict(result)["region_id"] == "DefaultRegion"
    assert result != dataclasses.replace(result, message_id="other")
    match result:
        case SendResult(SendStatus.SEND_OK, message_id):
            assert message_id == "id"
        case _:
            pytest.fail("its fields match by their place")


def test_each_of_a_batch_has_a_result_of_its_own():
    whole = SendResult(SendStatus.SEND_OK, "", "A,B", QUEUE, 5, "here", "t", False)
    assert results_of(SendResult, whole, ["k", "l"]) == [
        SendResult(SendStatus.SEND_OK, "k", "A", QUEUE, 5, "here", "", False),
        SendResult(SendStatus.SEND_OK, "l", "B", QUEUE, 6, "here", "", False)]
    assert [each.offset_message_id for each in results_of(SendResult, whole, ["k"])] == ["A,B"]
    with pytest.raises(TypeError, match="expected a class of results"):
        results_of(dict, whole, ["k", "l"])


class Own(Message):
    """A message with attributes of an application."""


def test_the_collector_of_garbage_looks_at_no_message_but_at_those_that_may_be_in_a_circle():
    messages = [Message("T", "x", tags="a") for _ in range(3)]
    results = results_of(SendResult, SendResult(SendStatus.SEND_OK, "", "A,B,C", QUEUE, 0),
                         ["k", "l", "m"])
    assert not any(map(gc.is_tracked, [*messages, *results]))
    own = Own("T", "x")
    own.itself = own
    assert gc.is_tracked(own)
    number = id(own)
    del own
    gc.collect()
    assert not any(id(each) == number for each in gc.get_objects() if type(each) is Own)
