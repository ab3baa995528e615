from dataclasses import dataclass

@dataclass(frozen=True)
class KeyMatches:
    positions: tuple[int, ...]
    oldest_ms: int
    last_time_ms: int
    last_position: int

class IndexReader:
    def __init__(self, folder: str, slots: int, entries: int) -> None: ...
    def find(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> KeyMatches: ...
    def files(self) -> list[str]: ...
