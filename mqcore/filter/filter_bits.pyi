from mqcore.shm.segment import Segment

class FilterBits:
    def __init__(self, segment: Segment, map_size: int) -> None: ...
