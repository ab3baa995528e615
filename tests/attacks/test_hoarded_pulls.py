"""Places of held pulls belong to all: who takes them all is sent away first (held.pxd, H5, H6)."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqcore.wire.command import encode, request
from tests.attacks.honest import Honest
from tests.attacks.medians import assert_hardly_slower
from tests.hostile.watch import Watch
from tests.pull.puller import Puller
from tests.support.mqcore_process import MqcoreProcess, mqcore_up

PLACES = 6_000
HOARDERS = 8
EACH = 1_500
ENOUGH_PULLS = 40                      # of the honest client, each held until a message comes
HOLD_MS = 600_000


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    settings: dict[str, object] = {
        "processes.held_pull_count_max": PLACES, "processes.serving_count": 1}
    with mqcore_up(tmp_path_factory.mktemp("hoarded"), settings) as running:
        yield running


def hoard(puller: Puller, topic: str, count: int) -> None:
    """Ask for `count` long polls at once."""
    fields = puller.fields(topic, sysFlag=6, suspendTimeoutMillis=HOLD_MS)
    puller.send(b"".join(encode(request(11, fields)) for _ in range(count)))


def test_one_connection_holds_a_share_of_all_places(target: MqcoreProcess, watch: Watch) -> None:
    with Puller(target.broker_addr) as hoarder:
        hoarder.topic("Hoarded", 1)
        hoarder.pull("Hoarded")                          # its group is known from now on
        hoard(hoarder, "Hoarded", PLACES)
        refused = 0
        while not hoarder.silent_for(1.0):
            refused += 1
    assert refused + 1 >= PLACES - max(1_024, PLACES // 8)


def test_long_polls_of_others_wait_while_hoarders_want_all_places(
    target: MqcoreProcess, watch: Watch, honest: Honest
) -> None:
    calm = honest.measure()
    hoarders = [Puller(target.broker_addr) for _ in range(HOARDERS)]
    try:
        hoarders[0].topic("Hoarded", 1)
        hoarders[0].pull("Hoarded")
        for hoarder in hoarders:
            hoard(hoarder, "Hoarded", EACH)
        with honest.span() as attacked, Puller(target.broker_addr) as other:
            other.topic("Waited", 1)
            waiting = [other.ask_to_pull("Waited", sysFlag=6, suspendTimeoutMillis=HOLD_MS)
                       for _ in range(ENOUGH_PULLS)]
            honest.until(lambda: len(attacked.sends_ms) >= 150, "150 sends")
            assert other.silent_for(0.5)                 # none of its long polls has ended
            with Puller(target.broker_addr) as sender:
                sender.batch("Waited", [{}])
            assert {other.receive(10).opaque for _ in waiting} == set(waiting)
    finally:
        for hoarder in hoarders:
            hoarder.close()
    assert_hardly_slower(attacked, calm)


def test_places_of_a_connection_that_ends_are_free_at_once(
    target: MqcoreProcess, watch: Watch
) -> None:
    for _ in range(3):
        with Puller(target.broker_addr) as hoarder:
            hoarder.topic("Hoarded", 1)
            hoarder.pull("Hoarded")
            hoard(hoarder, "Hoarded", 1_000)
            assert hoarder.silent_for(0.3)
