"""Topic tables, registration bodies in both forms, routes in both styles."""
import zlib

import pytest

from mqcore.wire.codes import version_ordinal, version_text
from mqcore.wire.topics import (
    BodyError,
    BrokerData,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRoute,
    TopicTable,
    decode_registration,
    decode_route,
    encode_registration,
    has_brokers,
)

TABLE = TopicTable(
    DataVersion(3, 1795251503235),
    {"T": TopicConfig("T", 8, 4, 6, "MULTI_TAG", 1, True), "U": TopicConfig("U")},
)
ROUTE = TopicRoute(
    (QueueData("broker-a", 4, 4, 6),),
    (BrokerData("DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}),),
)


def test_a_registration_body_reads_back():
    assert decode_registration(encode_registration(TABLE), compressed=False) == TABLE


def test_a_compressed_registration_loses_only_flags():
    read = decode_registration(encode_registration(TABLE, compressed=True), compressed=True)

    assert read.version == TABLE.version
    assert read.topics["T"] == TopicConfig("T", 8, 4, 6, "MULTI_TAG")


def test_a_registration_without_body_is_an_empty_table():
    assert decode_registration(b"", compressed=False) == TopicTable()


@pytest.mark.parametrize(("body", "compressed"), [
    (b"{", False),
    (b"[]", False),
    (b'{"topicConfigSerializeWrapper":{"topicConfigTable":[]}}', False),
    (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"x"}}}}', False),
    (b"nonsense", True),
    (zlib.compress(b"\x7f\xff\xff\xff{}"), True),
    (zlib.compress(b"\0\0\0\x02{}\x7f\xff\xff\xff"), True),
    (zlib.compress(b"\0\0\0\x02{}\0\0\0\x01\0\0\0\x03T 1"), True),
])
def test_a_bad_registration_body_is_refused(body, compressed):
    with pytest.raises(BodyError):
        decode_registration(body, compressed=compressed)


def test_the_two_styles_of_a_route_are_the_documented_text():
    legacy = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,'
        b'"writeQueueNums":4}]}'
    )
    assert ROUTE.encode(strict=False) == legacy
    assert ROUTE.encode(strict=True) == legacy.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')


@pytest.mark.parametrize("strict", [True, False])
def test_a_route_reads_back_in_either_style(strict):
    assert decode_route(ROUTE.encode(strict=strict)) == ROUTE


@pytest.mark.parametrize("body", [b"", b"[]", b'{"queueDatas":{}}', b'{"brokerDatas":[1]}'])
def test_a_bad_route_body_is_refused(body):
    with pytest.raises(BodyError):
        decode_route(body)


@pytest.mark.parametrize(("text", "ordinal"), [
    ("4.9.8", 409), ("4.6.0", 333), ("4.9.4", 401), ("3.4.9", 121), ("3.0.11", 37),
    ("V3_0_7_SNAPSHOT", 28), ("V4_1_0_SNAPSHOT", 232), ("V3_0_0_FINAL", 15), ("5.3.3", 479),
])
def test_a_version_has_the_ordinal_of_the_protocol(text, ordinal):
    assert version_ordinal(text) == ordinal


def test_a_version_ordinal_has_the_name_that_tools_print():
    assert version_text(409) == "V4_9_8"
    assert version_text(5000) == "HIGHER_VERSION"
    assert all(version_ordinal(version_text(ordinal)) == ordinal for ordinal in range(612))


@pytest.mark.parametrize("text", ["", "4", "3.3.0", "6.0.0", "x.y.z"])
def test_an_unknown_version_is_refused(text):
    with pytest.raises(ValueError, match="version"):
        version_ordinal(text)


def test_whether_any_broker_is_registered():
    assert has_brokers(b'{"brokerAddrTable":{"broker-a":{}},"clusterAddrTable":{}}')
    assert not has_brokers(b'{"brokerAddrTable":{},"clusterAddrTable":{}}')
    assert not has_brokers(b"{}")
    for body in (b"", b"[]"):
        with pytest.raises(BodyError):
            has_brokers(body)
