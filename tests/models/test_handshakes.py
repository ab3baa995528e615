"""
The thread that takes steps of handshakes, and the loop: whose a pipe is, and who wakes whom. As in
test_protocols.py: it holds in every order of steps, the end of a connection and of the process
between any two of them, and breaks without any one of its fences or swaps.
"""
from __future__ import annotations

from typing import Any

import pytest

from tests.models.explorer import Steps, Stuck, Thread, breaks, holds

# -- shake_thread.pxd TL9, TL10, with the bells of both sides --------------------------------------

HERE, ASKED, TAKEN, BACK, LEFT = range(5)
KEPT, GONE = "its connection goes on", "its connection has ended"


def once(what: str) -> Steps:
    assert not (yield ("exchange", what, 1)), f"TL9: {what} once"


def let_go(closes: bool) -> Steps:
    """pipe_close, and the socket unless the thread has closed it."""
    if closes:
        yield from once("closed")
    yield from once("freed")


def shaker(steps: int, ends: bool, without: str = "", *, together: bool = False,
           few: int = 0) -> tuple[Thread, Thread]:
    """
    One pipe that is asked for `steps` times, one after the other; ends: its connection may end at
    any moment, and the process may stop before a step is back. together: as many pipes, all asked
    for before the loop waits. few: steps that are left to the thread when it rings.
    """

    def fence(name: str) -> Steps:
        if name != without:
            yield ("fence",)

    def swap(name: str, old: int, new: int) -> Steps:
        if name != without:
            return (yield ("swap", "state", old, new))
        yield ("release", "state", new)
        return True

    def take_step(number: int) -> Steps:
        if (yield from swap("take", ASKED, TAKEN)):
            assert (yield ("load", "input")) == number, "TL9: what the loop left is seen"
            yield ("store", "output", number)
            if (yield from swap("bring back", TAKEN, BACK)):
                return
        assert not (yield ("load", "freed")), "TL9: nobody else lets go of it"
        yield from once("closed")
        yield ("store", "fd", -1)

    def thread() -> Steps:
        back_end = 0
        while not (yield ("load", "stop")):
            if (yield ("load", "asked_end")) == back_end:
                yield ("release", "asleep", 1)                 # sleep_until_asked
                yield from fence("sleep")
                if without == "second look" or (
                        (yield ("load", "asked_end")) == back_end and not (yield ("load", "stop"))):
                    yield ("sleep", "thread's bell")
                yield ("release", "asleep", 0)
                continue
            if ends:
                assert (yield ("load", "place")), "a pipe is in its place before it is asked for"
                yield from take_step(back_end + 1)
            back_end += 1
            yield ("store" if without == "release back" else "release", "back_end", back_end)
            if (yield ("load", "asked_end")) - back_end > few:
                continue
            yield from fence("ring")                           # doorbell_ring
            if (yield ("load", "loop asleep")) and (yield ("exchange", "loop asleep", 0)):
                yield ("ring", "loop's bell")
        yield ("fence",)
        yield ("ring", "joined")

    def wake() -> Steps:
        yield from fence("wake")
        if (yield ("load", "asleep")) and (yield ("exchange", "asleep", 0)):
            yield ("ring", "thread's bell")

    def leave() -> Steps:
        state = yield ("load", "state")
        while not (yield ("swap", "state", state, LEFT)):
            state = yield ("load", "state")

    def loop() -> Steps:
        gone = stopped = False
        for number in range(1, steps + 1):
            if ends:                                           # shake_thread_ask
                yield ("store", "input", number)
                yield ("release", "state", ASKED)
                yield ("store", "place", 1)
            yield ("store" if without == "release asked" else "release", "asked_end", number)
            yield from wake()
            if ends and (yield ("choose", 2)):
                yield from leave()
                gone = True
            if together and number < steps:
                continue
            stopped = bool(ends and (yield ("choose", 2)))
            while not stopped and (yield ("load", "back_end")) < number:
                yield ("release", "loop asleep", 1)            # doorbell_arm
                yield from fence("arm")
                if (yield ("load", "back_end")) < number:
                    yield ("sleep", "loop's bell")
                yield ("release", "loop asleep", 0)
            if stopped:                                        # else shake_thread_take
                break
            if not ends:
                continue
            if not (yield from swap("take back", BACK, HERE)):
                assert gone
                yield from let_go((yield ("load", "fd")) == 0)
                break
            assert not gone, "TL9: who has ended does not come back"
            assert (yield ("load", "output")) == number, "TL9: what the thread did is seen"
        if stopped and not gone:                               # transport_close_all
            yield from leave()
            gone = True
        yield ("release", "stop", 1)                           # shake_thread_close
        if without != "stop wakes":
            yield from wake()
        yield ("sleep", "joined")
        if stopped:
            yield from let_go((yield ("load", "fd")) == 0)
        return GONE if gone else KEPT

    return loop, thread


def nothing_is_left(memory: dict[str, int], said: list[Any]) -> None:
    gone = int(said[0] == GONE)
    assert memory.get("closed", 0) == memory.get("freed", 0) == gone, "TL9: all is let go of"


@pytest.mark.slow
def test_a_pipe_is_in_one_hand_at_a_time_and_is_let_go_of_once() -> None:
    assert holds(*shaker(1, ends=True), at_end=nothing_is_left) > 1000


@pytest.mark.slow
def test_steps_follow_each_other_and_nobody_sleeps_for_ever() -> None:
    assert holds(*shaker(2, ends=False), at_end=nothing_is_left) > 1000


@pytest.mark.slow
def test_a_bell_for_steps_that_come_back_together_is_enough() -> None:
    assert holds(*shaker(2, ends=False, together=True), at_end=nothing_is_left) > 1000


def test_a_thread_that_has_none_left_and_does_not_ring_leaves_the_loop_asleep() -> None:
    assert isinstance(breaks(*shaker(2, ends=False, together=True, few=-1)), Stuck)


@pytest.mark.parametrize("without", ["sleep", "second look", "wake", "ring", "arm", "stop wakes"])
def test_without_one_of_its_fences_somebody_sleeps_for_ever(without: str) -> None:
    assert isinstance(breaks(*shaker(2, ends=False, without=without)), Stuck)


@pytest.mark.parametrize(("without", "says"), [
    ("take", "who has ended does not come back"),
    ("bring back", "who has ended does not come back"),
    ("take back", "who has ended does not come back"), ("release back", "closed once"),
    ("release asked", "in its place")])
def test_without_one_of_its_swaps_a_pipe_is_in_two_hands_or_in_none(
    without: str, says: str,
) -> None:
    assert says in str(breaks(*shaker(1, ends=True, without=without), at_end=nothing_is_left))
