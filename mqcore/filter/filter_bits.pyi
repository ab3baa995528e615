from mqcore.shm.segment import Segment
from mqcore.store.queue.bit_source import BitSource

class FilterBits(BitSource):
    def __init__(self, segment: Segment, map_size: int) -> None: ...
