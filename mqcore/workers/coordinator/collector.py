"""
The interpreter's search for garbage in circles, in bounded pieces.

By itself it looks, now and then, at every object that has lived for a while: a third of a second
when clients have said much, in which no request is served. Here the interpreter looks only at young
objects (some thousands at a time). Survivors are looked at once, while they are few; if most stay
they are data, and are not looked at again. Data is freed as ever, when nothing leads to it any
more; only a circle in it would stay, and requests make none that live as long
(tests/broker/test_turns.py).
"""
from __future__ import annotations

import gc

OBJECTS_YOUNG = 1_000                # that were made and not let go, between two looks at those
LOOKS = 10                           # at them, before those that stayed are looked at once more
OLD_LOOKS_MAX = 2                    # of the latter: as many times 11,000 objects are then old
NEVER = 1 << 30
DATA_COUNT_MIN = 8_000               # old objects that stay are data if there are more


class Collector:
    """Of this process, from now on. Call `look` between any two short pieces of work."""

    def __init__(self) -> None:
        gc.freeze()              # what the start made, a million offsets: need not be looked at
        gc.set_threshold(OBJECTS_YOUNG, LOOKS, NEVER)

    def look(self) -> None:
        """Look at the old objects if they may be many."""
        if gc.get_count()[2] >= OLD_LOOKS_MAX:
            self.collect()

    def collect(self) -> None:
        """Look at the old objects there are: at most OLD_LOOKS_MAX times 11,000, and some."""
        gc.collect()
        if len(gc.get_objects(generation=2)) > DATA_COUNT_MIN:
            gc.freeze()
