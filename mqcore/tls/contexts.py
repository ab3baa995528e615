"""Contexts of Python's `ssl` for asyncio: of the name server, and of connections to others."""
from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

from mqcore.stamps import Stamp, stamp
from mqcore.tls.bounded import BoundedContext
from mqcore.tls.settings import TlsServerSettings, TlsSettings

_CLIENTS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
OWN_FILES = ("certificate", "key", "key_password_file", "client_certificate", "client_key",
             "client_key_password_file")
PASSWORD_BYTES_MAX = 1_024
NO_CHECK_TIME = 0x200000             # X509_V_FLAG_NO_CHECK_TIME, which `ssl` has no name for
CRL_EXPECTED = "the revocation lists of authorities, in PEM"


class TlsFileError(ValueError):
    """A file cannot be used; the text names it and what was expected."""


def password(given: str, file: str) -> str:
    """A key's password, from the settings or the first line of a file. Raises TlsFileError."""
    if not file:
        return given
    try:
        with Path(file).open("rb") as opened:
            line = opened.readline(PASSWORD_BYTES_MAX + 2)
        return line.rstrip(b"\r\n").decode("utf-8")
    except (OSError, ValueError) as error:
        raise TlsFileError(f"{file}: cannot be read: {error}; expected a key's password, in one "
                           "line") from None


def server_context(tls: TlsServerSettings) -> ssl.SSLContext | None:
    """
    What asyncio serves with; None when TLS is not served.

    Client certificates are verified: a server that takes any is one of the native ports alone.
    Raises TlsFileError.
    """
    if not tls.serves:
        return None
    context = BoundedContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 1
    _load_own(context, tls.certificate, tls.key, password(tls.key_password, tls.key_password_file))
    if tls.trust:
        _load_trust(context, tls.trust)
    if tls.crl:
        _load_crl(context, tls.crl)
    if tls.verify_client:
        context.verify_mode = _CLIENTS[tls.client_auth]
    return context


def client_context(tls: TlsSettings) -> ssl.SSLContext | None:
    """
    What connections to others are made with; None: in the clear. Raises TlsFileError.
    """
    if not tls.client_enable:
        return None
    context = ssl.create_default_context()
    if tls.client_trust:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_trust(context, tls.client_trust)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.client_verify and tls.client_verify_host
    context.verify_mode = ssl.CERT_REQUIRED if tls.client_verify else ssl.CERT_NONE
    if tls.client_crl:
        _load_crl(context, tls.client_crl)
    _load_client(context, tls)
    return context


def own_context(tls: TlsSettings) -> ssl.SSLContext | None:
    """
    What a broker goes to the name server beside it with, which has the same certificate: that one
    is trusted, whatever host and time it names. Where a certificate is asked for and none is set
    for going to others, it shows this one. None: in the clear, which lets it in. Raises
    TlsFileError.
    """
    if tls.mode != "enforcing":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    _load_trust(context, tls.certificate)
    _load_client(context, tls)
    if not tls.client_certificate and tls.client_auth == "require":
        _load_own(context, tls.certificate, tls.key,
                  password(tls.key_password, tls.key_password_file))
    return context


def stamps(tls: TlsServerSettings, files: Sequence[str]) -> tuple[Stamp, ...]:
    """What changes with the files that settings of these names give."""
    return tuple(stamp(path) for name in files if (path := getattr(tls, name)))


def check_crl(file: str) -> None:
    """
    Raises TlsFileError for a file that holds other things than revocation lists: a certificate in
    it would be trusted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(file)
        found = context.cert_store_stats()
    except (OSError, ValueError) as error:
        raise TlsFileError(f"{file}: {_words(error)}; expected {CRL_EXPECTED}") from None
    if not found["crl"] or found["x509"]:
        raise TlsFileError(f"{file}: {found['crl']} revocation lists and {found['x509']} "
                           f"certificates; expected {CRL_EXPECTED}")


def trouble(error: Exception) -> str:
    """What was wrong with a handshake, in few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    reason = getattr(error, "reason", None)
    # OpenSSL's words, as the broker's native side says them
    return reason.replace("_", " ").lower() if reason else str(error)


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _load_crl(context: ssl.SSLContext, file: str) -> None:
    check_crl(file)
    context.load_verify_locations(file)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_client(context: ssl.SSLContext, tls: TlsSettings) -> None:
    if tls.client_certificate:
        _load_own(context, tls.client_certificate, tls.client_key,
                  password(tls.client_key_password, tls.client_key_password_file))


def _load_own(context: ssl.SSLContext, certificate: str, key: str, secret: str) -> None:
    try:
        context.load_cert_chain(certificate, key, lambda: secret)
    except (OSError, ValueError) as error:
        raise TlsFileError(f"{certificate}, {key}: {error}; expected a certificate and its private "
                           "key in PEM, and its password if it is encrypted") from None


def _load_trust(context: ssl.SSLContext, file: str) -> None:
    try:
        context.load_verify_locations(file)
    except (OSError, ValueError) as error:
        raise TlsFileError(f"{file}: {error}; expected the certificates of authorities in "
                           "PEM") from None
