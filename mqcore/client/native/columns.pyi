class Columns:
    row_count: int
    key_count: int
    item_count: int
    tags_missing: int
    queue_offset: bytes
    log_position: bytes
    born_ms: bytes
    store_ms: bytes
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
def columns(bodies: list[bytes], row_count: int) -> Columns: ...
