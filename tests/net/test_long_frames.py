"""Whose frames go to the coordinator in parts first (N15 of serving/forward.pxd)."""
from __future__ import annotations

import contextlib
from pathlib import Path

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import encode, request
from tests.net.serving import Serving

PEERS, PLACES = 24, 4
FRAME_BYTES = 1_500_000


def test_connections_have_places_in_the_order_in_which_they_asked(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    with contextlib.ExitStack() as ends:
        for number in range(PEERS):
            peer = ends.enter_context(serving.connect())
            serving.send(peer, encode(request(
                Code.GET_MAX_OFFSET, {"topic": "T"}, b"%02d" % number + b"x" * FRAME_BYTES)))
        order = [int(item.body[:2]) for item in serving.forwarded(PEERS)]
    assert sorted(order) == list(range(PEERS))
    assert all(abs(place - number) < PLACES for place, number in enumerate(order))
