"""A client looks for a new leader soon when calls to the former one fail."""
from __future__ import annotations

import itertools

import pytest

from mqcore.client.config import client_config
from mqcore.client.errors import (
    BrokerError,
    ConnectError,
    MessageTooLarge,
    NoRouteError,
    RequestTimeout,
    RocketMQError,
)
from mqcore.client.roles import instance as instances
from mqcore.client.roles.instance import ClientInstance

STEP_S = 0.01                        # between two sends


class Looks:
    """An instance whose clock is turned by hand, and the times at which it asks for routes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.asked = 1000.0, list[float]()
        patch.setattr(instances.time, "monotonic", lambda: self.now)
        self.instance = ClientInstance(client_config({"namesrv": "127.0.0.1:1"}, None),
                                       heartbeat=dict, masters_only=True)
        self.instance.running = True
        patch.setattr(self.instance, "refresh_routes", lambda: None)
        patch.setattr(self.instance, "spawn", lambda _: self.asked.append(self.now))

    def fail(self, seconds: float, error: RocketMQError | None = None) -> list[float]:
        """Calls fail for so long; when routes were asked for, from their beginning."""
        began, before = self.now, len(self.asked)
        while self.now < began + seconds:
            self.instance.doubt_routes(error or ConnectError("refused"))
            self.now += STEP_S
        return [at - began for at in self.asked[before:]]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def latest(asked: list[float], elected: float) -> float:
    """When a client that asks at these times knows of an election at that one."""
    return next(at for at in asked if at >= elected)


def test_a_failover_is_seen_half_a_second_or_a_quarter_after_it(looks: Looks) -> None:
    asked = looks.fail(120.0)
    assert asked[0] == 0.0
    for tenths in range(1, 900):
        elected = tenths / 10
        assert latest(asked, elected) - elected <= 0.55 + 0.25 * elected
    assert len(asked) < 25, "an outage of two minutes asks a name server that often"


def test_an_outage_of_an_hour_costs_one_question_in_half_a_minute(looks: Looks) -> None:
    asked = looks.fail(3600.0)
    assert len(asked) < 150
    assert max(b - a for a, b in itertools.pairwise(asked)) <= 30.1


def test_the_next_failover_is_seen_as_soon(looks: Looks) -> None:
    for _ in range(5):                                  # 15 s apart
        asked = looks.fail(2.5)
        assert asked[0] == 0.0
        assert max(b - a for a, b in itertools.pairwise(asked)) < 1.0
        looks.instance._on_route("T")
        looks.now += 11.5


def test_a_route_that_changed_is_no_leave_to_ask_without_pause(looks: Looks) -> None:
    """A set whose members take turns as long as calls fail."""
    asked = 0
    for _ in range(100):
        asked += len(looks.fail(0.1))
        looks.instance._on_route("T")
    assert asked <= 22


@pytest.mark.parametrize(("error", "asks"), [
    (ConnectError("refused"), True), (RequestTimeout("no answer"), True),
    (BrokerError(14, "stands aside"), True), (BrokerError(1, "full"), False),
    (BrokerError(16, "no permission"), False), (MessageTooLarge("too large"), False),
    (NoRouteError("no master", 10003), False)])
def test_only_who_answers_nothing_or_takes_nothing_is_doubted(
        looks: Looks, error: RocketMQError, asks: bool) -> None:
    assert bool(looks.fail(5.0, error)) is asks
