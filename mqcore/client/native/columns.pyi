from enum import IntEnum

from mqcore.wire.records import RecordError

class Want(IntEnum):
    WANT_BODY = 1
    WANT_TAGS = 2
    WANT_KEYS = 4
    WANT_IDS = 8
    WANT_PROPERTIES = 16
    WANT_JSON = 32
    WANT_TOPICS = 64
    WANT_HOSTS = 128

class Columns:
    row_count: int
    key_count: int
    item_count: int
    tags_missing: int
    body_there: bytes | None
    body_missing: int
    queue_offset: bytes
    log_position: bytes
    born_time: bytes
    store_time: bytes
    prepared_position: bytes
    queue_id: bytes
    body_crc: bytes
    json: bytes
    json_ends: bytes
    topics: bytes
    topics_ends: bytes
    born_hosts: bytes
    born_hosts_ends: bytes
    store_hosts: bytes
    store_hosts_ends: bytes
    flag: bytes
    sys_flag: bytes
    reconsume_times: bytes
    body: bytes
    body_ends: bytes
    tags: bytes
    tags_ends: bytes
    tags_there: bytes
    keys: bytes
    keys_ends: bytes
    keys_rows: bytes
    ids: bytes
    ids_ends: bytes
    names: bytes
    names_ends: bytes
    values: bytes
    values_ends: bytes
    items_rows: bytes

def scan(
    body: bytes, begin: int, stop: int, whole: bool, tags: list[bytes] | None
) -> tuple[bytes, int, int, int, int]: ...
class TooMuch(RecordError): ...
def columns(
    bodies: list[bytes | bytearray | memoryview], row_count: int, want: int = ..., ticks: int = ...,
    inflated_max: int = ..., broken_is_null: bool = ...,
    broken_stays: bool = ...,
) -> Columns: ...
