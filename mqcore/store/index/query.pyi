from dataclasses import dataclass

@dataclass(frozen=True)
class KeyMatches:
    positions: tuple[int, ...]
    oldest_ms: int
    last_time_ms: int
    last_position: int

class KeyLookUp:
    def __init__(
        self, reader: IndexReader, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> None: ...
    def step(self) -> bool: ...
    def matches(self) -> KeyMatches: ...

class IndexReader:
    def __init__(self, folder: str, slots: int, entries: int) -> None: ...
    def find(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> KeyMatches: ...
    def look_up(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> KeyLookUp: ...
    def files(self) -> list[str]: ...
