from typing import NamedTuple

from mqcore.shm.segment import Segment

class Forwarded(NamedTuple):
    connection: int
    parked: int
    body_size: int
    remote: str
    fast_port: bool
    frame: bytes
    repeated: bool
    shares: int
    size: int

class Closed(NamedTuple):
    connection: int

class Reading(NamedTuple):
    connection: int
    reads: bool

class Commit(NamedTuple):
    group: str
    topic: str
    queue_id: int
    offset: int

class CoordinatorRings:
    dropped: int
    sent_bytes: int
    def __init__(self, segment: Segment) -> None: ...
    def receive(self, limit: int) -> list[Forwarded | Closed | Reading | Commit]: ...
    def is_stale(self, connection: int) -> bool: ...
    def lost(self) -> bool: ...
    def has_work(self) -> bool: ...
    def taken(self, connection: int, shares: int, size: int) -> None: ...
    def say_taken(self) -> None: ...
    def send(self, connection: int, frame: bytes, parked: int = 0) -> None: ...
    def offer(self, connection: int, frame: bytes) -> None: ...
    def redo(self, connection: int, parked: int, header: bytes = b"") -> None: ...
    def drop(self, connection: int, parked: int) -> None: ...
    def close(self, connection: int) -> None: ...
    def push_waiting(self) -> bool: ...
