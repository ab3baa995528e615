"""TLS of a serving process, from its settings."""
from __future__ import annotations

from mqcore.net.transport.tls import TlsMode
from mqcore.net.transport.tls_context import TlsContext
from mqcore.tls.contexts import check_crl, password
from mqcore.tls.settings import TlsServerSettings

MODES = {"disabled": TlsMode.TLS_DISABLED, "permissive": TlsMode.TLS_PERMISSIVE,
         "enforcing": TlsMode.TLS_ENFORCING}


def native_context(tls: TlsServerSettings, *, any_time: bool = False) -> TlsContext | None:
    """
    The TLS context of connections; None: no TLS. any_time: the certificate may have expired.
    Raises ValueError, OSError.
    """
    if not tls.serves:
        return None
    if tls.crl:
        check_crl(tls.crl)
    return TlsContext(
        certificate=tls.certificate, key=tls.key,
        password=password(tls.key_password, tls.key_password_file), trust=tls.trust,
        crl=tls.crl, clients=tls.client_auth, verify=tls.verify_client, any_time=any_time)
