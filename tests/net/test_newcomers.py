"""What a turn does for connections that begin, by hand (N20 in mqcore/net/transport/work.pxd)."""
from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.net.serving import Serving

WAIT = 40                           # to be accepted
A_TURN = 14                         # that a turn accepts, at most
TURNS_MAX = 2_000


def test_a_turn_accepts_few_of_those_that_wait_and_the_next_ones_the_rest(tmp_path: Path) -> None:
    """Half of what there was room for: whoever is connected waits for a part of a millisecond."""
    serving = Serving(tmp_path)
    with contextlib.ExitStack() as peers:
        for _ in range(WAIT):
            peers.enter_context(serving.connect())
        accepted = [serving.figure("connections")]
        for _ in range(TURNS_MAX):
            serving.one_turn()
            accepted.append(serving.figure("connections"))
            if accepted[-1] == WAIT:
                break
        assert accepted[-1] == WAIT
        assert max(after - before for before, after in itertools.pairwise(accepted)) <= A_TURN


def test_who_has_spoken_when_he_is_accepted_is_heard_in_the_same_turn(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    with serving.connect() as peer:
        peer.socket.sendall(encode(request(RequestCode.GET_BROKER_RUNTIME_INFO)))
        for _ in range(TURNS_MAX):
            serving.one_turn()
            if serving.figure("connections"):
                break
        assert serving.figure("bytes_in") > 0
        assert len(serving.forwarded()) == 1
