"""A running broker with an extension: tag filters look behind the addresses; queues come and go."""
import pytest

from mqcore.store.extension_files import ADDRESS_LAST
from mqcore.wire.records import decode_records
from tests.store.harness import read_entries
from tests.support.mqcore_process import mqcore_up
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

SEND, PULL, CREATE_TOPIC, DELETE_TOPIC = 310, 11, 17, 215
TOPIC = "extended"
FILE_BYTES = 1024
COUNT = 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with mqcore_up(tmp_path_factory.mktemp("extended"), {
        "store.queue_extension_enable": True, "store.queue_extension_file_bytes": FILE_BYTES,
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
