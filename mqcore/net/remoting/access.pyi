from enum import IntEnum

from mqcore.shm.segment import Segment

class AccessReason(IntEnum):
    ACCESS_NO_KEY = 1
    ACCESS_UNKNOWN_KEY = 2
    ACCESS_SIGNATURE = 3
    ACCESS_TOPIC = 4
    ACCESS_GROUP = 5
    ACCESS_FIELDS = 6

class AccessProbe:
    def __init__(self, segment: Segment, body_max: int = ...) -> None: ...
    def judge(self, frame: bytes, address: bytes) -> tuple[str, int]: ...
    def judge_many(self, frame: bytes, count: int) -> int: ...
