Buffer = object
Column = tuple[Buffer | None, Buffer, Buffer | None, int] | None

class ArrowRows:
    count: int
    def __init__(
        self, count: int, body: Column, *, tags: Column = None, keys: Column = None,
        keys_rows: Column = None, names: Column = None, values: Column = None,
        map_rows: Column = None, flags: Column = None,
    ) -> None: ...
    def encode(
        self, first: int, count_max: int, size_max: int, prefix: bytes, number: int,
    ) -> tuple[bytes, int]: ...
