class Signing:
    end: int
    def __init__(
        self, secret: bytes, parts: list[tuple[bytes, int, int]], signature_at: int,
    ) -> None: ...
