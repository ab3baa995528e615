from enum import IntEnum

class Side(IntEnum):
    SIDE_NONE = ...
    SIDE_NAMED = ...
    SIDE_LIGHT = ...
    SIDE_UNQUEUED = ...

class Vectors:
    count: int
    key_count: int
    fault_count: int
    position: bytes
    size: bytes
    queue_id: bytes
    queue_offset: bytes
    tags_code: bytes
    delivery: bytes
    store_time: bytes
    side: bytes
    body_length: bytes
    topic: bytes
    topic_ends: bytes
    key_position: bytes
    key_hash: bytes
    key_time: bytes
    fault_position: bytes
    fault_field: bytes
    fault_value: bytes

def audit_rows(records: bytes, count: int, delay_ms: list[int]) -> Vectors: ...
