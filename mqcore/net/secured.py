"""TLS contexts of native loops, from their settings."""
from __future__ import annotations

from mqcore.net.transport.tls import TlsMode
from mqcore.net.transport.tls_context import TlsClientContext, TlsContext
from mqcore.tls.contexts import check_crl, password
from mqcore.tls.settings import TlsServerSettings, TlsSettings

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


def followed_context(tls: TlsServerSettings, *, asks: bool, any_time: bool = False,
                     ) -> TlsContext | None:
    """
    The same of the port of slaves. asks: a slave has to show a certificate, which is verified
    whatever tls.verify_client says.
    """
    if not tls.serves:
        return None
    if tls.crl and asks:
        check_crl(tls.crl)
    return TlsContext(
        certificate=tls.certificate, key=tls.key,
        password=password(tls.key_password, tls.key_password_file),
        trust=tls.trust if asks else "", crl=tls.crl if asks else "",
        clients="require" if asks else "none", any_time=any_time)


def native_client_context(tls: TlsSettings) -> TlsClientContext:
    """The TLS context of connections to other brokers. Raises ValueError, OSError."""
    if tls.client_crl:
        check_crl(tls.client_crl)
    return TlsClientContext(
        trust=tls.client_trust, certificate=tls.client_certificate, key=tls.client_key,
        password=password(tls.client_key_password, tls.client_key_password_file),
        verify=tls.client_verify, verify_host=tls.client_verify_host, crl=tls.client_crl)
