_Buffer = bytes | bytearray | memoryview

_Column = tuple[_Buffer | None, _Buffer | None, _Buffer | None, int] | None

class ArrowRows:
    count: int
    def __init__(
        self, count: int, body: _Column, *, tags: _Column = None, keys: _Column = None,
        keys_rows: _Column = None, names: _Column = None, values: _Column = None,
        map_rows: _Column = None, flags: _Column = None, verbatim: bool = False,
    ) -> None: ...
    def encode(
        self, first: int, count_max: int, size_max: int, prefix: bytes, number: int,
    ) -> tuple[bytes, int]: ...
