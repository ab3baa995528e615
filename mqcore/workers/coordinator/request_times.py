"""How long the coordinator takes for requests: the histograms of its classes of codes."""
from __future__ import annotations

from mqcore.broker.requests.table import CLIENT_CODES, MESSAGE_CODES
from mqcore.participants import COORDINATOR
from mqcore.shm.latencies import BY_NAME
from mqcore.shm.latency import LatencySlots
from mqcore.shm.segment import Segment

U32_MAX, I32_MAX = 0xFFFF_FFFF, 0x7FFF_FFFF
ADMIN = BY_NAME["admin_request"].id
CLASSES = {**dict.fromkeys(CLIENT_CODES, BY_NAME["client_request"].id),
           **dict.fromkeys(MESSAGE_CODES, BY_NAME["message_request"].id)}


class RequestTimes:
    """
    From the hand of the serving process to the answer. Ends are counted when the caller has read
    its clock: a clock is not read for each request.
    """

    def __init__(self, segment: Segment) -> None:
        self._slots = LatencySlots(segment)
        self._ended: list[tuple[int, int]] = []

    def end(self, code: int, taken_us: int) -> None:
        """A request that was taken at a steady time, of 32 bits, was answered."""
        self._ended.append((CLASSES.get(code, ADMIN), taken_us))

    def count(self, now_s: float) -> None:
        """Count those since the last call; now_s: time.perf_counter, the steady clock of Linux."""
        for kind, taken_us in self._ended:
            took_us = (int(1e6 * now_s) - taken_us) & U32_MAX
            self._slots.add(COORDINATOR.slot, kind, took_us if took_us < I32_MAX else 0)
        self._ended.clear()
