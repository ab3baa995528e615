"""Requests to clients end once: with their answer, their time or their connection (7.6)."""
from __future__ import annotations

import pytest

from mqcore.broker import client_calls
from mqcore.broker.client_calls import CallEnd, ClientCalls
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
    bench.broker.connections_lost(3)

    assert lost == [CallEnd.CLOSED]
    assert (answered, timed_out, closed) == ([answer], [CallEnd.TIMEOUT], [CallEnd.CLOSED])
