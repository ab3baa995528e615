"""The client's rules without I/O: vectors of docs/protocol, turned by hand."""
import importlib.util
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.client import (
    BrokerError,
    ClientConfig,
    ConfigError,
    ConnectError,
    Credentials,
    Message,
    MessageQueue,
    NoRouteError,
    Producer,
    RequestTimeout,
)
from mqcore.client.config import ClientOptions
from mqcore.client.core.compression import Compression, Compressor
from mqcore.client.core.faults import FaultTable, avoided_for
from mqcore.client.core.namespace import unwrap, wrap
from mqcore.client.core.retry import RETRY_CODES, Tries
from mqcore.client.core.selection import QueueTurns, java_hash, queue_by_shard
from mqcore.client.core.signature import sign
from mqcore.client.produce.producer_config import ProducerConfig, ProducerOptions
from mqcore.wire.command import request
from mqcore.wire.records import decompress

EIGHT = [MessageQueue("T", "b", n) for n in range(8)]


@pytest.mark.parametrize(("key", "hashed", "index"), [
    ("order-1001", 708180863, 7), ("polygenelubricants", -2147483648, 0), ("你好", 652829, 5),
    (-7, -7, 7), (10**10, 1410065410, 2), (True, 1231, 7), ("", 0, 0), ("😀", 1772899, 3),
])
def test_a_shard_hashes_as_in_java(key, hashed, index):                   # client.md 2.11
    assert (java_hash(key), queue_by_shard(EIGHT, key).queue_id) == (hashed, index)


@pytest.mark.parametrize("key", [1.5, b"x", None, 1 << 63])
def test_a_shard_that_java_would_hash_otherwise_is_refused(key):
    with pytest.raises(ConfigError, match="shard"):
        java_hash(key)


@pytest.mark.parametrize(("name", "wrapped"), [
    ("T", "ns%T"), ("%RETRY%g", "%RETRY%ns%g"), ("%DLQ%g", "%DLQ%ns%g"), ("ns%T", "ns%T"),
    ("%RETRY%ns%g", "%RETRY%ns%g"), ("TBW102", "TBW102"), ("rmq_sys_x", "rmq_sys_x"),
    ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"), ("", ""),
])
def test_namespaces_wrap_what_is_not_the_brokers_own(name, wrapped):      # client.md 1.8
    assert wrap("ns", name) == wrapped
    assert wrap("", name) == name


@given(st.text("abc%", min_size=1, max_size=8))
def test_unwrapping_takes_off_what_wrapping_put_on(name):
    if not name.startswith("ns%"):
        assert unwrap("ns", wrap("ns", name)) == name
    assert unwrap("other", name) == name


LAID_OUT = {"topic": "topicC", "key": "k", "maxNum": "3", "beginTimestamp": "0",
            "endTimestamp": "9"}


def test_a_signed_question_has_a_layout():
    command = request(12, dict(LAID_OUT))
    for _ in range(2):
        sign(command, Credentials("RocketMQ", "12345678"))
    assert command.ext == {
        **LAID_OUT, "AccessKey": "RocketMQ", "#Layout": "1ca0341797d4b92e3f4d51ae1f6b77ef",
        "Signature": "mMDra7Rns3TpX681W/j0UYJYTBI="}


@pytest.mark.parametrize(("code", "ext", "body", "signature"), [      # client.md 7.2
    (310, {"a": "p", "b": "topicC", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
           "h": "0", "k": "false", "m": "false"}, b"hello", "Zjk5zqWWPDsc6WZqU4MLHGDeXiU="),
])
def test_requests_are_signed_as_by_java(code, ext, body, signature):
    command = request(code, ext, body)
    sign(command, Credentials("RocketMQ", "12345678"))
    sign(command, Credentials("RocketMQ", "12345678"))
    assert command.ext == {**ext, "AccessKey": "RocketMQ", "Signature": signature}
    assert "12345678" not in repr(Credentials("RocketMQ", "12345678"))


@pytest.mark.parametrize(("latency", "avoided"), [
    (0.0, 0.0), (0.1, 0.0), (0.549, 0.0), (0.55, 30.0), (1.0, 60.0), (2.5, 120.0), (3.0, 180.0),
    (15.0, 600.0), (99.0, 600.0)])
def test_a_slow_broker_is_avoided_for_the_time_of_the_table(latency, avoided):   # client.md 2.5
    assert avoided_for(latency) == avoided


def test_avoided_brokers_are_chosen_when_there_is_no_other():
    table, turns = FaultTable(), QueueTurns()
    queues = [MessageQueue("T", name, n) for name in "ab" for n in range(2)]
    table.note("a", 0.1, True, now=0.0)
    assert {turns.next_available(queues, table, 1.0).broker_name for _ in range(8)} == {"b"}
    table.note("b", 20.0, False, now=1.0)
    assert {turns.next_available(queues, table, 2.0).broker_name for _ in range(8)} == {"a"}
    assert {turns.next_available(queues, table, 601.0).broker_name for _ in range(8)} == {"a", "b"}
    gone = [MessageQueue("T", "c", 0)]
    table.note("c", 0.1, True, now=0.0)
    assert turns.next_available(gone, table, 2.0) == gone[0]


def test_turns_pass_by_the_broker_that_failed():
    turns, queues = QueueTurns(), [MessageQueue("T", name, n) for name in "ab" for n in range(2)]
    assert {turns.next(queues, "a").broker_name for _ in range(8)} == {"b"}
    assert {turns.next(queues).broker_name for _ in range(4)} == {"a", "b"}
    assert turns.next(queues[:1], "a") == queues[0]


@pytest.mark.parametrize(("error", "again"), [
    (BrokerError(14, "x"), True), (BrokerError(2, "busy"), False), (BrokerError(13, "x"), False),
    (RequestTimeout("late", stored=None), True), (ConnectError("x"), True),
    (NoRouteError("no route"), False), (NoRouteError("no master", 10003), True),
    (ConfigError("x"), False)])
def test_what_another_try_may_cure_is_tried_again(error, again):         # client.md 2.7
    tries = Tries(2, 10.0)
    tries.begin()
    assert tries.note_failure(error, 1.0, RETRY_CODES) is again
    assert not tries.note_failure(error, 10.0, RETRY_CODES)
    tries.begin()
    assert not tries.note_failure(error, 1.0, RETRY_CODES)


def test_a_send_is_surely_not_stored_only_if_no_try_may_have_been():
    refused = BrokerError(14, "x")
    for first, known in ((BrokerError(14, "x"), False), (RequestTimeout("x", stored=None), None)):
        tries = Tries(2, 10.0)
        tries.note_failure(first, 1.0, RETRY_CODES)
        tries.note_failure(refused, 1.0, RETRY_CODES)
        assert tries.final_error(refused).stored is known


def test_errors_copy_and_pickle_whole():
    error = BrokerError(17, "no topic", "h:1", topic="T")
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), vars(other)) == (BrokerError, str(error), vars(error))


def test_bodies_are_compressed_so_that_they_read_back():
    body = b"words and words " * 500
    made, flags = Compressor(Compression.ZLIB, 5).compress(body)
    assert (decompress(made, flags), flags, len(made) < len(body)) == (body, 0x301, True)


@pytest.mark.parametrize("size", [0, 1, 100, 100_000, 4_194_303, 4_194_304])
def test_a_body_that_would_not_become_smaller_stays_as_it_is(size):
    body = os.urandom(size)
    assert Compressor(Compression.ZLIB, 5).compress(body) == (body, 0)


@pytest.mark.parametrize(("kind", "package"), [
    (Compression.LZ4, "lz4"), (Compression.ZSTD, "zstandard")])
def test_compression_works_or_names_the_package_it_needs(kind, package):
    if importlib.util.find_spec(package) is None:
        with pytest.raises(ConfigError, match=package):
            Compressor(kind, 5)
        return
    made, flags = Compressor(kind, 5).compress(b"x" * 9_999)
    assert decompress(made, flags) == b"x" * 9_999


# -- options --------------------------------------------------------------------------------------


def test_a_url_says_servers_account_namespace_and_tls():
    config = ClientConfig(namesrv="rocketmq://ak:s%40k@h:9876;h2:9876/space?tls=insecure")
    assert config.name_servers == ["h:9876", "h2:9876"]
    assert config.account == Credentials("ak", "s@k")
    assert config.namespace == "space"
    assert config.ssl_context().check_hostname is False
    assert ClientConfig(namesrv="rocketmq://h:1?tls=verify").ssl_context().check_hostname
    assert ClientConfig(namesrv="http://anything/h:9876").name_servers == ["h:9876"]


def test_the_environment_names_the_servers(monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert ClientConfig().name_servers == ["a:1", "b:2"]
    assert ClientConfig(namesrv=["c:3"]).name_servers == ["c:3"]


@pytest.mark.parametrize(("options", "said"), [
    ({"namesrv": "h"}, "address 'h': expected host:port"),
    ({"namesrv": "rocketmq://"}, "expected at least one"),
    ({"namesrv": "rocketmq://h:1?tlss=x"}, "did you mean tls"),
    ({"namesrv": "rocketmq://h:1?tls=maybe"}, "expected one of verify"),
    ({"namespcae": "x"}, "did you mean namespace"),
    ({"send_timout": 3}, "did you mean send_timeout"),
    ({"nonsense_at_all": 3}, "expected one of"),
    ({"send_timeout": 0}, "send_timeout 0: expected seconds above 0"),
    ({"send_timeout": "3"}, "send_timeout '3'"),
    ({"max_in_flight": 0}, "max_in_flight 0: expected a whole number"),
    ({"linger": -1}, "linger -1"), ({"topics": "T"}, "topics 'T': expected a list"),
    ({"topics": ["a b"]}, "topics 'a b'"), ({"credentials": ("", "x")}, "credentials"),
    ({"tls": "yes"}, "tls 'yes'"), ({"namespace": "a b"}, "namespace 'a b'"),
    ({"compression": "zlib"}, "compression 'zlib'"), ({"heartbeat_interval": -1}, "heartbeat"),
])
def test_a_bad_option_is_named_with_what_was_expected(options, said):
    with pytest.raises(ConfigError) as error:
        Producer("PG", **{"namesrv": "h:1", **options})
    assert said in str(error.value)


@pytest.mark.parametrize("options", [
    {"credentials": "AK:s3cret"}, {"credentials": {"access_key": "AK", "secret_key": "s3cret"}},
    {"credentials": ["AK", "s3cret"]}, {"credentials": ("s3cret",)},
    {"credentials": ("AK", "s3cret", "t", "x")}, {"credentials": ("AK", b"s3cret")},
    {"credentials": (b"s3cret", "x")}, {"credentials": ("AK", "s3cret", 7)},
    {"credentials": ("AK", None)}, {"namesrv": "AK:s3cret@h:9876"},
    {"namesrv": ["rocketmq://AK:s3cret@h:9876"]}, {"namesrv": "rocketmqs://AK:s3cret;x@h:1"},
    {"namesrv": "rocketmq://AK:s3cret/x@h:9876"}, {"namesrv": "rocketmq://AK:x@s3cret/y@h:1"},
    {"namesrv": "rocketmq://AK:x?s3cret@h:9876"}, {"namesrv": b"s3cret"}, {"namesrv": 7},
    {"namesrv": ["h:1", 7]}, {"namesrv": {"s3cret": 1}}], ids=repr)
def test_a_secret_in_a_wrong_place_is_an_error_that_does_not_show_it(options):
    with pytest.raises(ConfigError, match=next(iter(options))) as raised:
        ClientConfig(**options)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_options_lie_over_a_configuration():
    config = ClientConfig(namesrv="h:1", namespace="one", unit_name="u")
    producer = Producer("PG", config=config, namespace="two", send_timeout=1.0)
    assert producer._role._instance.config.namespace == "two"
    assert producer._role._instance.config.unit_name == "u"


def test_every_option_has_a_type_for_editors():
    assert set(ProducerOptions.__annotations__) == (
        set(ProducerConfig.__dataclass_fields__) | set(ClientOptions.__annotations__))
    assert set(ClientOptions.__annotations__) == set(ClientConfig.__dataclass_fields__)


@pytest.mark.parametrize(("make", "said"), [
    (lambda: Message("T", 7), "body: expected bytes or str, not int"),
    (lambda: Message("T", "x", delay_level=19), "delay_level 19"),
    (lambda: Message("T", "x", flag=1 << 31), "flag"),
    (lambda: Message("T", "x", keys=5), "keys 5: expected a str, or several"),
    (lambda: Message("T", "x", keys=["a", 5]), "keys ['a', 5]: expected a str, or several"),
    (lambda: Message("T", "x", tags=5), "tags 5: expected a str"),
    (lambda: Message("T", "x", properties={"a": 1}), "expected two str"),
    (lambda: Message("T", "x", properties={"a\x01": "b"}), "characters 1 and 2"),
    (lambda: Producer("a b", namesrv="h:1"), "group 'a b'"),
    (lambda: Producer("DEFAULT_PRODUCER", namesrv="h:1"), "DEFAULT_PRODUCER"),
    (lambda: Producer(7, namesrv="h:1"), "group 7: expected a str"),
])
def test_a_bad_argument_is_named(make, said):
    with pytest.raises(ConfigError) as error:
        make()
    assert said in str(error.value)


def test_a_body_may_be_any_kind_of_bytes():
    assert {Message("T", kind(b"ab")).body for kind in (bytes, bytearray, memoryview)} == {b"ab"}
    assert Message("T", "é").body == "é".encode()
