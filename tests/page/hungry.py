"""Work that takes the memory that a request names."""


def work(request: bytes) -> bytes:
    """The number of bytes that it took."""
    return str(len(bytes(int(request)))).encode()
