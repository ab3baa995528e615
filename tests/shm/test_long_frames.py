"""How the coordinator joins frames that come in parts (mqcore/shm/coordinator_rings.pyx)."""
from __future__ import annotations

import os
import tracemalloc

import pytest

from mqcore.shm.coordinator_rings import LongFrame

PART, HEADER, BODY = 64 << 10, 100_000, 4 << 20


def parts(raw: bytes) -> list[bytes]:
    return [raw[begin:begin + PART] for begin in range(0, len(raw), PART)]


def test_a_long_frame_is_as_it_was_sent() -> None:
    raw = os.urandom(HEADER + BODY)
    frame = LongFrame(1, HEADER, BODY)
    came = [frame.add_for_test(part) for part in parts(raw)]
    assert came == [False] * (len(came) - 1) + [True]
    assert frame.texts == (raw[:HEADER], raw[HEADER:])


def test_no_part_costs_a_copy_of_those_before_it() -> None:
    sent = parts(bytes(HEADER + BODY))
    tracemalloc.start()
    try:
        frame = LongFrame(1, HEADER, BODY)
        for part in sent:
            frame.add_for_test(part)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < HEADER + BODY + PART


def test_more_than_was_promised_is_refused() -> None:
    frame = LongFrame(1, 10, 20)
    assert not frame.add_for_test(bytes(29))
    with pytest.raises(ValueError, match="30 bytes: 31 came"):
        frame.add_for_test(bytes(2))
