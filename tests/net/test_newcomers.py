"""The work of a turn for connections that begin and end, by hand (N20)."""
from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

from mqcore.participants import COORDINATOR, DISPATCHER, WRITER
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.net.serving import Serving

WAIT = 40                           # to be accepted
OLD = 20                            # that are there before
A_TURN = 14                         # that a turn accepts, at most
ENDS_A_TURN = 6                     # that a turn closes, at most
TURNS_MAX = 200_000
ATTEMPTS = 50


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


def test_a_turn_closes_few_of_those_that_end_at_once(tmp_path: Path) -> None:
    """Also connections that have asked before and are not new any more."""
    serving = Serving(tmp_path)
    with contextlib.ExitStack() as peers:
        for _ in range(WAIT):
            peer = peers.enter_context(serving.connect())
            peer.socket.sendall(encode(request(RequestCode.GET_BROKER_RUNTIME_INFO)))
            assert len(serving.forwarded()) == 1
    left = [serving.figure("connections")]
    assert left == [WAIT]
    for _ in range(TURNS_MAX):
        serving.one_turn()
        left.append(serving.figure("connections"))
        if not left[-1]:
            break
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) <= ENDS_A_TURN


def test_a_crowd_waits_for_its_share_only_while_somebody_else_waits(tmp_path: Path) -> None:
    """
    The processes that work for others: all sleep, or one is awake. A machine with other work may
    take as long for a turn as the rest lasts: hence several attempts.
    """
    serving = Serving(tmp_path)
    for process in (WRITER, DISPATCHER, COORDINATOR):
        serving.sleeps(process.slot)
    assert min(_turns_that_accept_nobody(serving) for _ in range(ATTEMPTS)) == 0
    for process in (WRITER, DISPATCHER, COORDINATOR):
        serving.works(process.slot)
        assert any(_turns_that_accept_nobody(serving) for _ in range(ATTEMPTS))
        serving.sleeps(process.slot)


def test_a_crowd_that_waits_is_served_now_and_then_however_many_end(tmp_path: Path) -> None:
    """Ends are counted for it, too: else it would wait until all are done."""
    serving = Serving(tmp_path)
    assert any(0 < _fewest_before_a_crowd(serving) < OLD for _ in range(ATTEMPTS))


def _fewest_before_a_crowd(serving: Serving) -> int:
    """How many of OLD connections that end are left when a crowd without a share is accepted."""
    with contextlib.ExitStack() as new:
        with contextlib.ExitStack() as old:
            for _ in range(OLD):
                peer = old.enter_context(serving.connect())
                peer.socket.sendall(encode(request(RequestCode.GET_BROKER_RUNTIME_INFO)))
                assert len(serving.forwarded()) == 1
            for _ in range(2):                       # its share is used up
                with contextlib.ExitStack() as peers:
                    for _ in range(WAIT):
                        peers.enter_context(serving.connect())
                    _until(serving, OLD + WAIT)
                _until(serving, OLD)
        for _ in range(OLD):
            new.enter_context(serving.connect())
        least = OLD
        for _ in range(TURNS_MAX):
            serving.one_turn()
            least = min(least, serving.figure("connections"))
            if serving.figure("connections") > least:
                break
        else:
            least = 0
    _until(serving, 0)
    return least


def _turns_that_accept_nobody(serving: Serving) -> int:
    """While some of a crowd wait, which ends afterwards: the next one has had its share."""
    rests = 0
    with contextlib.ExitStack() as peers:
        for _ in range(WAIT):
            peers.enter_context(serving.connect())
        accepted = 0
        for _ in range(TURNS_MAX):
            before = accepted
            serving.one_turn()
            accepted = serving.figure("connections")
            if accepted == WAIT:
                break
            rests += accepted == before
        assert accepted == WAIT
    _until(serving, 0)
    return rests


def _until(serving: Serving, connections: int) -> None:
    for _ in range(TURNS_MAX):
        if serving.figure("connections") == connections:
            return
        serving.turn()
    raise AssertionError(f"{serving.figure('connections')} connections, not {connections}")
