AUTHORITIES: str
CLIENTS: tuple[str, ...]
DAY_S: int
OP_NO_COMPRESSION: int
OP_NO_RENEGOTIATION: int
OP_NO_TICKET: int
OP_SERVER_PREFERENCE: int

class TlsContextError(ValueError): ...

class OpenSslContext: ...

class TlsContext(OpenSslContext):
    def __init__(
        self, *, certificate: str, key: str, password: str = "", trust: str = "",
        clients: str = "none", verify: bool = True, crl: str = "",
        any_time: bool = False,
    ) -> None: ...

class TlsClientContext(OpenSslContext):
    def __init__(
        self, *, trust: str = "", certificate: str = "", key: str = "", password: str = "",
        verify: bool = True, verify_host: bool = True, crl: str = "",
    ) -> None: ...
    @property
    def verifies_host(self) -> bool: ...

def look(file: bytes, expected: str) -> None: ...
def reason(code: int) -> str: ...
def trouble(detail: int) -> str: ...
def self_signed(name: str, days: int = 365) -> bytes: ...
