from typing import NamedTuple

from mqcore.shm.segment import Segment

class CheckRequest(NamedTuple):
    group: str
    frame: bytes

class Progress(NamedTuple):
    half_offset: int
    op_offset: int

class NeededTopic(NamedTuple):
    name: str

class CheckRing:
    def __init__(self, segment: Segment) -> None: ...
    def receive(self, limit: int) -> list[CheckRequest | Progress | NeededTopic]: ...
    def has_work(self) -> bool: ...

def transaction_figures(segment: Segment) -> dict[str, int] | None: ...
