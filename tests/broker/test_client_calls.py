"""Requests to clients end once: with answer, time or connection (broker.md 7.6)."""
from __future__ import annotations

import pytest

from mqcore.broker.tables import client_calls
from mqcore.broker.tables.client_calls import CallEnd, ClientCalls
from mqcore.wire.command import Command, request, response
from tests.broker.fakes import NOW_MS, Bench, FakeConnections

Outcome = Command | CallEnd


@pytest.fixture
def connections() -> FakeConnections:
    return FakeConnections()


@pytest.fixture
def calls(connections: FakeConnections) -> ClientCalls:
    return ClientCalls(connections)


def ask(
    calls: ClientCalls, connection: int = 1, timeout_ms: int = 5_000, now_ms: int = NOW_MS
) -> list[Outcome]:
    """What the call will have ended with."""
    ended: list[Outcome] = []
    calls.call(connection, request(221, {"topic": "T"}), timeout_ms, ended.append, now_ms)
    return ended


def test_an_answer_reaches_the_one_who_asked_and_nobody_else(
    calls: ClientCalls, connections: FakeConnections
) -> None:
    first, second = ask(calls), ask(calls)
    answer = response(connections.sent[1][1], 0, "fine")

    assert calls.answered(1, answer)
    assert (first, second) == ([], [answer])
    assert not calls.answered(1, answer)
    assert len(calls) == 1


def test_another_connection_cannot_answer(
    calls: ClientCalls, connections: FakeConnections
) -> None:
    ended = ask(calls, connection=1)

    assert not calls.answered(2, response(connections.sent[0][1], 0))
    assert ended == []


def test_a_call_ends_with_its_time(calls: ClientCalls) -> None:
    short, long = ask(calls, timeout_ms=5_000), ask(calls, timeout_ms=10_000)

    calls.expire(NOW_MS + 4_999)
    assert (short, long) == ([], [])
    calls.expire(NOW_MS + 5_000)
    assert (short, long) == ([CallEnd.TIMEOUT], [])
    calls.expire(NOW_MS + 10_000)
    assert (short, long) == ([CallEnd.TIMEOUT], [CallEnd.TIMEOUT])
    assert len(calls) == 0


def test_a_shorter_call_made_later_ends_first(calls: ClientCalls) -> None:
    long, short = ask(calls, timeout_ms=10_000), ask(calls, timeout_ms=1_000)

    calls.expire(NOW_MS + 1_000)
    assert (long, short) == ([], [CallEnd.TIMEOUT])


def test_no_call_waits_for_ever_when_the_clock_is_set_back(calls: ClientCalls) -> None:
    ended = ask(calls)

    calls.expire(NOW_MS - 3_600_000)
    assert ended == [CallEnd.TIMEOUT]


def test_a_closed_connection_ends_its_calls_alone(calls: ClientCalls) -> None:
    lost, kept = ask(calls, connection=1), ask(calls, connection=2)

    calls.connection_closed(1)
    assert (lost, kept) == ([CallEnd.CLOSED], [])


@pytest.mark.parametrize("limit", ["CALL_COUNT_MAX", "CALL_BYTES_MAX"])
def test_a_call_too_many_is_refused_at_once_and_not_sent(
    calls: ClientCalls, connections: FakeConnections, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    ask(calls)
    size = calls._bytes
    monkeypatch.setattr(client_calls, limit, 1 if limit == "CALL_COUNT_MAX" else size + 1)

    assert ask(calls) == [CallEnd.REFUSED]
    assert len(connections.sent) == 1
    calls.connection_closed(1)
    assert ask(calls) == []


def test_a_continuation_may_ask_again(calls: ClientCalls, connections: FakeConnections) -> None:
    again: list[Outcome] = []

    def retry(_: Outcome) -> None:
        calls.call(1, request(221), 5_000, again.append, NOW_MS)

    calls.call(1, request(221), 5_000, retry, NOW_MS)
    calls.connection_closed(1)
    assert (again, len(connections.sent)) == ([], 2)
    calls.expire(NOW_MS + 5_000)
    assert again == [CallEnd.TIMEOUT]


def test_the_broker_hands_answers_ticks_and_ends_of_connections_on(bench: Bench) -> None:
    calls = bench.broker.core.calls
    answered, timed_out, closed = ask(calls, 1), ask(calls, 2), ask(calls, 3, 60_000)
    answer = response(bench.connections.sent[0][1], 0)

    bench.broker.handle_response(1, answer)
    bench.broker.tick(NOW_MS + 5_000)
    bench.broker.connection_closed(3)
    lost = ask(calls, 3 << 48 | 1, 60_000)
    bench.broker.connection_closed(3 << 48 | 1)

    assert lost == [CallEnd.CLOSED]
    assert (answered, timed_out, closed) == ([answer], [CallEnd.TIMEOUT], [CallEnd.CLOSED])


# -- what one client has not taken yet ---------------------------------------------------------


def ask_long(calls: ClientCalls, connection: int = 1, size: int = 1_000) -> list[Outcome]:
    ended: list[Outcome] = []
    calls.call(connection, request(326, {}, bytes(size)), 5_000, ended.append, NOW_MS)
    return ended


def sent_to(connections: FakeConnections, connection: int = 1) -> list[Command]:
    return [command for to, command in connections.sent if to == connection]


@pytest.fixture
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_calls, "SENT_BYTES_MAX", 2_500)


def test_a_client_gets_later_calls_in_their_order_as_it_answers_earlier_ones(
    calls: ClientCalls, connections: FakeConnections, two_at_a_time: None
) -> None:
    ended = [ask_long(calls) for _ in range(5)]
    ask_long(calls, connection=2)
    assert (len(sent_to(connections)), len(sent_to(connections, 2))) == (2, 1)

    for number in range(5):
        answer = response(sent_to(connections)[number], 0)
        assert calls.answered(1, answer)
        assert ended[number] == [answer]
        assert len(sent_to(connections)) == min(number + 3, 5)
    opaques = [command.opaque for command in sent_to(connections)]
    assert opaques == sorted(opaques)
    assert len(calls) == 1


def test_a_short_call_does_not_pass_one_that_waits_for_room(
    calls: ClientCalls, connections: FakeConnections, two_at_a_time: None
) -> None:
    for size in (2_000, 2_000, 1):
        ask_long(calls, size=size)
    assert [len(command.body) for command in sent_to(connections)] == [2_000]
    calls.answered(1, response(sent_to(connections)[0], 0))

    assert [len(command.body) for command in sent_to(connections)] == [2_000, 2_000, 1]


def test_a_call_larger_than_all_room_is_sent_alone(
    calls: ClientCalls, connections: FakeConnections, two_at_a_time: None
) -> None:
    ask_long(calls, size=9_000)
    ask_long(calls, size=9_000)

    assert len(sent_to(connections)) == 1
    calls.answered(1, response(sent_to(connections)[0], 0))
    assert len(sent_to(connections)) == 2


def test_a_call_that_was_never_sent_ends_with_its_time_and_its_connection(
    calls: ClientCalls, connections: FakeConnections, two_at_a_time: None
) -> None:
    ended = [ask_long(calls) for _ in range(4)]
    calls.expire(NOW_MS + 5_000)
    assert ended == [[CallEnd.TIMEOUT]] * 4

    again = [ask_long(calls) for _ in range(4)]
    sent = len(connections.sent)
    calls.connection_closed(1)
    assert again == [[CallEnd.CLOSED]] * 4
    assert (len(calls), len(connections.sent)) == (0, sent)
    ask_long(calls)
    assert len(connections.sent) == sent + 1


def test_an_answer_to_a_call_that_was_not_sent_is_nobody_s(
    calls: ClientCalls, connections: FakeConnections, two_at_a_time: None
) -> None:
    ended = [ask_long(calls) for _ in range(3)]
    guessed = response(sent_to(connections)[0], 0)

    assert not calls.answered(1, Command(**{
        **{name: getattr(guessed, name) for name in guessed.__dataclass_fields__},
        "opaque": guessed.opaque + 2}))
    assert ended == [[], [], []]


def test_one_connection_has_a_share_of_all_calls(calls: ClientCalls) -> None:
    deaf = [ask(calls, connection=1) for _ in range(client_calls.SHARE_COUNT_MAX + 1)]

    assert [len(ended) for ended in deaf] == [0] * client_calls.SHARE_COUNT_MAX + [1]
    assert deaf[-1] == [CallEnd.REFUSED]
    assert ask(calls, connection=2) == []


def test_the_newest_call_to_who_is_asked_most_makes_room_for_others(
    calls: ClientCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_calls, "CALL_COUNT_MAX", 6)
    many = [ask(calls, connection=1) for _ in range(4)]
    few = [ask(calls, connection=2) for _ in range(2)]

    assert ask(calls, connection=3) == []
    assert many == [[], [], [], [CallEnd.REFUSED]]
    assert ask(calls, connection=1) == [CallEnd.REFUSED]
    assert [ask(calls, connection=number) for number in (4, 5, 6)] == [[], [], []]
    assert ask(calls, connection=7) == [CallEnd.REFUSED]         # nobody has more than one now
    assert few == [[], [CallEnd.REFUSED]]
    assert len(calls) == 6


def test_bytes_belong_to_all_as_well(
    calls: ClientCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(calls, connection=9)
    size = calls._bytes
    monkeypatch.setattr(client_calls, "CALL_BYTES_MAX", 4 * size)
    many = [ask(calls, connection=1) for _ in range(3)]

    assert ask(calls, connection=2) == []
    assert many == [[], [], [CallEnd.REFUSED]]
