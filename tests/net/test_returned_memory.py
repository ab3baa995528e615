"""What connections held goes back to the system in parts, however many end at once (N21)."""
from __future__ import annotations

from mqcore.net.probes.returning import Returning

MIB = 1 << 20
TURN = 2 * MIB                  # what a turn gives back
BUFFER = MIB + (64 << 10)       # of a peer that reads nothing
BUDGET = 256 * MIB


def test_a_turn_gives_back_no_more_than_its_part() -> None:
    memory = Returning(BUDGET)
    memory.end(100, BUFFER)
    assert memory.used == 100 * BUFFER           # what is still there counts
    given = []
    while memory.used:
        given.append(memory.turn())
        assert memory.wakeful == (memory.used > 0)       # nobody waits for an event
    assert sum(given) == 100 * BUFFER
    assert all(0 < part < TURN + BUFFER for part in given), given


def test_small_buffers_are_free_at_once() -> None:
    memory = Returning(BUDGET)
    memory.end(1_000, 64 << 10)
    assert memory.used == 0
    assert memory.turn() == 0
    assert not memory.wakeful


def test_whoever_needs_the_room_gets_as_much_at_once() -> None:
    memory = Returning(16 * MIB)
    memory.end(16, MIB)
    assert memory.take(3 * MIB)
    assert memory.used == 16 * MIB               # three of them went, not all
    assert memory.take(13 * MIB)
    assert memory.used == 16 * MIB
    assert memory.turn() == 0                    # nothing waits any more
    assert not memory.take(1)                    # and the limit is what it was
