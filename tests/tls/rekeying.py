"""A client that changes its keys without end: records that hold no data. By OpenSSL itself."""
from __future__ import annotations

import ctypes
import socket

from mqcore.tls.library import candidates

VERIFY_NONE = 0
NO_ANSWER_WANTED = 0


def change_keys(connection: socket.socket, count: int) -> int:
    """Shake hands, then change keys `count` times or until the server ends it; how often."""
    library = ctypes.CDLL(candidates()[0] or None)
    for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(library, name).restype = ctypes.c_void_p
    connection.setblocking(True)
    context = ctypes.c_void_p(library.SSL_CTX_new(ctypes.c_void_p(library.TLS_client_method())))
    library.SSL_CTX_set_verify(context, VERIFY_NONE, None)
    end = ctypes.c_void_p(library.SSL_new(context))
    try:
        assert library.SSL_set_fd(end, connection.fileno()) == 1
        assert library.SSL_connect(end) == 1
        for done in range(count):
            assert library.SSL_key_update(end, NO_ANSWER_WANTED) == 1
            if library.SSL_do_handshake(end) != 1:
                return done
        return count
    finally:
        library.SSL_free(end)
        library.SSL_CTX_free(context)
