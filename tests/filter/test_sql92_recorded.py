"""SQL92 filters answer as a stock broker did: its filter classes, its pulls, its bit maps."""
from __future__ import annotations

import json

import pytest

from mqcore.filter.bitmap import has_positions, set_positions
from mqcore.filter.bloom import BloomFilter
from mqcore.filter.sql92_compiler import Truth
from mqcore.filter.sql92_filter import Filter
from mqcore.wire.command import decode
from mqcore.wire.properties import encode_properties
from mqcore.wire.records import decode_records
from mqcore.wire.sql92_tokens import SqlError
from tests.filter.stock import recorded
from tests.store.golden import manifest
from tests.support.recorded import exchanges

LETTERS = {Truth.TRUE: "T", Truth.FALSE: "F", Truth.NULL: "N", Truth.RAISED: "X"}
GOLDEN = manifest("filter_ext")
SUBSCRIPTIONS = GOLDEN["config"]["consumerFilter"]["filterDataByTopic"]["golden_sql"][
    "groupFilterData"]


def plain_bytes(properties: dict[str, str]) -> bytes:
    """Property bytes without encode_properties' refusal of separators inside values."""
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode()


def letter(expression: str, properties: dict[str, str]) -> str:
    try:
        return LETTERS[Filter.compile(expression).evaluate(plain_bytes(properties))]
    except SqlError:
        return "R"


@pytest.mark.parametrize("origin", ["chosen", "random"])
def test_every_recorded_case_has_the_stock_answer(origin: str) -> None:
    cases = [case for case in recorded() if case[3] == origin]
    differences = [(expression, properties, answer, letter(expression, properties))
                   for expression, properties, answer, _ in cases
                   if letter(expression, properties) != answer]

    assert len(cases) > 1_000
    assert {case[2] for case in cases} == set("RTFNX")
    assert differences == []


def sql_subscriptions() -> dict[str, str]:
    """topic -> expression of the recorded heartbeats."""
    found = {}
    for exchange in exchanges("consumer"):
        if exchange.code == 34 and exchange.request.body_text:
            heartbeat = json.loads(exchange.request.body_text)
            for group in heartbeat.get("consumerDataSet", ()):
                found.update((item["topic"], item["subString"])
                             for item in group.get("subscriptionDataSet", ())
                             if item.get("expressionType") == "SQL92")
    return found


def test_every_message_of_a_recorded_sql92_pull_passes_its_expression() -> None:
    expressions = set(sql_subscriptions().values())
    delivered = []
    for exchange in exchanges("pull"):
        asked = decode(exchange.request.payload).ext or {}
        if asked.get("expressionType") != "SQL92" or exchange.response is None:
            continue
        body = decode(exchange.response.payload).body
        delivered += decode_records(body) if body else []

    assert len(delivered) == 6
    assert len(expressions) == 1            # all recorded consumers asked for the same
    wanted = Filter.compile(expressions.pop())
    for record in delivered:
        assert wanted.matches(encode_properties(record.properties).encode())


def test_the_bits_of_each_subscription_are_where_stock_put_them() -> None:
    bloom = BloomFilter.for_rate()

    for group, data in SUBSCRIPTIONS.items():
        assert bloom.bit_count == data["bloomFilterData"]["bitNum"]
        assert list(bloom.subscription_positions(group, "golden_sql")) \
            == data["bloomFilterData"]["bitPos"]


def test_the_bit_map_of_every_stored_message_comes_from_the_filters_that_it_passes() -> None:
    bloom = BloomFilter.for_rate()
    messages = {(message["queueId"], message["queueOffset"]): message
                for message in GOLDEN["messages"] if message["topic"] == "golden_sql"}
    passed = 0
    for queue in GOLDEN["consumeQueues"]:
        for unit in queue["ext"]:
            message = messages[queue["queueId"], unit["index"]]
            properties = encode_properties(message["properties"]).encode()
            bits = bytearray(bloom.map_size)
            for group, data in SUBSCRIPTIONS.items():
                positions = bloom.subscription_positions(group, "golden_sql")
                if Filter.compile(data["expression"]).matches(properties):
                    set_positions(bits, positions)
                    passed += 1
                    assert has_positions(bytes.fromhex(unit["filterBitMapHex"]), positions)
            assert bits.hex() == unit["filterBitMapHex"].lower()

    assert len(messages) == 160
    assert passed > 100
