class LogScan:
    position: int
    result: int
    def __init__(self, log_folder: bytes, segments: list[tuple[int, int]], *, start: int = ...,
                 stop: int = ..., topic: bytes | None = ..., queue_id: int = ...,
                 key: bytes | None = ..., from_ms: int = ..., to_ms: int = ...) -> None: ...
    def next(self) -> bytes | None: ...
