"""Which producer of a group is asked (broker.md 5.6)."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.acl.rules import PUB, SUB, Account, AclFile, Rules
from mqcore.broker.requests.check_sender import CheckSender
from mqcore.broker.tables.clients import Client
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from mqcore.wire.properties import REAL_TOPIC
from mqcore.wire.records import Record, encode_record
from mqcore.wire.topics import DataVersion
from tests.broker.fakes import Bench, make_bench, settings_in

QUESTION = encode(request(RequestCode.CHECK_TRANSACTION_STATE, {"msgId": "m"}, oneway=True))
ON_SERVING_1 = 1 << 48


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(settings_in(tmp_path / "store"))


@pytest.fixture
def checks(bench: Bench) -> CheckSender:
    return CheckSender(bench.broker.core)


def join(bench: Bench, group: str, *connections: int) -> None:
    for connection in connections:
        bench.ask(34, None, {"clientID": f"p{connection}",
                             "producerDataSet": [{"groupName": group}]}, connection=connection)


def asked(bench: Bench, checks: CheckSender, count: int, group: str = "P") -> list[int]:
    """Who gets each of `count` questions."""
    bench.connections.sent.clear()
    for _ in range(count):
        assert checks.ask(group, QUESTION)
    return [connection for connection, _ in bench.connections.sent]


def test_members_take_turns_group_by_group(bench: Bench, checks: CheckSender) -> None:
    join(bench, "P", 1, 2, 3)
    join(bench, "Q", 4)

    assert asked(bench, checks, 4) == [1, 2, 3, 1]
    assert asked(bench, checks, 2, "Q") == [4, 4]
    assert asked(bench, checks, 2) == [2, 3]


def test_nobody_is_asked_in_an_empty_or_unknown_group(
    bench: Bench, checks: CheckSender
) -> None:
    join(bench, "P", 1)
    bench.broker.connection_closed(1)
    assert bench.broker.core.clients.producers == {"P": {}}

    assert not checks.ask("P", QUESTION)
    assert not checks.ask("unknown", QUESTION)
    assert bench.connections.sent == []


def test_who_does_not_read_is_passed_over_until_it_reads_again(
    bench: Bench, checks: CheckSender
) -> None:
    join(bench, "P", 1, 2, 3)
    checks.reading(2, reads=False)
    assert asked(bench, checks, 4) == [1, 3, 1, 3]

    checks.reading(2, reads=True)
    assert sorted(asked(bench, checks, 3)) == [1, 2, 3]


def test_the_third_is_asked_when_three_do_not_read(
    bench: Bench, checks: CheckSender
) -> None:
    join(bench, "P", 1, 2, 3, 4)
    for connection in (1, 2, 3):
        checks.reading(connection, reads=False)

    assert asked(bench, checks, 3) == [3, 4, 3]


def test_a_group_of_which_nobody_reads_is_asked_all_the_same(
    bench: Bench, checks: CheckSender
) -> None:
    join(bench, "P", 1, 2)
    checks.reading(1, reads=False)
    checks.reading(2, reads=False)

    assert asked(bench, checks, 2) == [2, 2]


def test_what_is_known_of_the_connections_of_a_lost_serving_process_is_forgotten(
    bench: Bench, checks: CheckSender
) -> None:
    join(bench, "P", 7, ON_SERVING_1 | 7, 8)
    checks.reading(7, reads=False)
    checks.reading(ON_SERVING_1 | 7, reads=False)
    checks.forget(lambda connection: connection >> 48 == 1)

    assert asked(bench, checks, 4) == [ON_SERVING_1 | 7, 8, ON_SERVING_1 | 7, 8]


def half_question(topic: str) -> bytes:
    record = encode_record(Record(
        "RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 0, 0, 0, 0, 0, ("127.0.0.1", 1), 0, ("127.0.0.1", 2), 0,
        0, b"secret", {REAL_TOPIC: topic, "PGROUP": "P"}, 0))
    return encode(request(RequestCode.CHECK_TRANSACTION_STATE, {"msgId": "m"}, record, oneway=True))


def test_of_a_group_only_those_are_shown_a_half_message_who_may_publish_it(
    bench: Bench, checks: CheckSender,
) -> None:
    core = bench.broker.core
    core.access.on = True
    accounts = tuple(Account(name, "secret-key", permissions={"orders": bits})
                     for name, bits in (("publisher", PUB), ("reader", SUB)))
    core.access.rules = Rules([AclFile("f", accounts, (), DataVersion(timestamp=0), {})])
    for connection, account in enumerate(("reader", "gone", "publisher", ""), 1):
        core.clients.register_producer(
            "P", Client(connection, f"p{connection}", None, 0, "127.0.0.1:1", 0, account))

    for _ in range(4):
        assert checks.ask("P", half_question("orders"))
    assert checks.ask("P", half_question("others"))
    assert [connection for connection, _ in bench.connections.sent] == [3, 4, 3, 4, 4]
    core.clients.producers["P"].pop(4)
    assert not checks.ask("P", half_question("others"))


def test_a_client_id_stays_with_the_account_that_has_it(bench: Bench) -> None:
    """Replies are for the client that a request came from."""
    clients = bench.broker.core.clients
    for connection, account in ((1, "owner"), (2, "other"), (3, "owner")):
        clients.register_producer(
            "P", Client(connection, "id", None, 0, "127.0.0.1:1", 0, account))
        assert clients.producer_connection("id") == (connection if account == "owner" else 1)
    for connection in (1, 3):
        bench.broker.connection_closed(connection)
    clients.register_producer("P", Client(2, "id", None, 0, "127.0.0.1:1", 0, "other"))
    assert clients.producer_connection("id") == 2
