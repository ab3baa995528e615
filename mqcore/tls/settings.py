"""
Section [tls] of a broker's and of a name server's file.

tls.md 1.2 (RocketMQ 4.9.8: TlsSystemConfig). Without a certificate nobody is served TLS,
whatever the mode: then a port closes who begins with it.
"""
from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from mqcore.wire import home

Positive = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
SERVER_FILES = ("certificate", "key", "key_password_file", "trust", "crl")
CLIENT_FILES = ("client_certificate", "client_key", "client_key_password_file", "client_trust",
                "client_crl")
SECRETS = ("key_password", "client_key_password")


class TlsServerSettings(Struct, frozen=True, kw_only=True):
    """Who is served TLS, and with what."""

    mode: Literal["disabled", "permissive", "enforcing"] = "permissive"
    certificate: str = ""
    key: str = ""                                     # "" = in the certificate's file
    key_password: str = ""
    key_password_file: str = ""
    trust: str = ""
    crl: str = ""
    client_auth: Literal["none", "optional", "require"] = "none"
    verify_client: bool = True
    test_mode: bool = False
    poll_ms: Positive = 1_000
    handshake_ms_max: Positive = 10_000
    handshake_count_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 1_000

    @property
    def serves(self) -> bool:
        """Whether there is a certificate to serve TLS with."""
        return self.mode != "disabled" and bool(self.certificate)


class TlsSettings(TlsServerSettings, frozen=True, kw_only=True):
    """The same of a broker, which also goes to others."""

    client_enable: bool = False
    client_verify: bool = True
    client_verify_host: bool = True
    client_trust: str = ""                            # "" = the system's authorities
    client_crl: str = ""
    client_certificate: str = ""
    client_key: str = ""
    client_key_password: str = ""
    client_key_password_file: str = ""


def trouble(tls: TlsServerSettings, *, elsewhere: bool = False) -> tuple[str, str] | None:
    """
    The first key that does not go with the others, and what was expected of it. elsewhere: at
    another port certificates are verified, too.
    """
    if tls.mode == "enforcing" and not (tls.certificate or tls.test_mode):
        return "mode", '"permissive" or "disabled", since tls.certificate is not set'
    if tls.test_mode and tls.certificate:
        return "test_mode", "false, since tls.certificate is set"
    for name in ("key", "key_password", "key_password_file"):
        if getattr(tls, name) and not tls.certificate:
            return name, "nothing, since tls.certificate is not set"
    if tls.client_auth != "none" and tls.verify_client and not tls.trust:
        return "client_auth", ('"none", since tls.trust is not set: it names the authorities that '
                               "clients' certificates are verified with")
    if tls.crl and not elsewhere and (tls.client_auth == "none" or not tls.verify_client):
        return "crl", ('nothing, since no certificates of clients are verified (tls.client_auth, '
                       "tls.verify_client)")
    if tls.key_password and tls.key_password_file:
        return "key_password", "nothing, since tls.key_password_file is set"
    if not isinstance(tls, TlsSettings):
        return None
    if tls.client_crl and not (tls.client_enable and tls.client_verify):
        return "client_crl", ("nothing, since no certificates of servers are verified "
                              "(tls.client_enable, tls.client_verify)")
    for name in ("client_key", "client_key_password", "client_key_password_file"):
        if getattr(tls, name) and not tls.client_certificate:
            return name, "nothing, since tls.client_certificate is not set"
    if tls.client_key_password and tls.client_key_password_file:
        return "client_key_password", "nothing, since tls.client_key_password_file is set"
    return None


Tls = TypeVar("Tls", bound=TlsServerSettings)


def files_in_use(tls: TlsSettings) -> tuple[str, ...]:
    """The names of the settings whose files are read: stock's may name more, and switch TLS off."""
    ours = SERVER_FILES if tls.serves else ()
    theirs = CLIENT_FILES if tls.client_enable or tls.mode == "enforcing" else ()
    return tuple(name for name in (*ours, *theirs) if getattr(tls, name))


def expanded(tls: Tls) -> Tls:
    """The same with whole paths, and the keys where they are looked for. Raises NoHomeError."""
    paths = {name: home.expanded(path)
             for name in SERVER_FILES + CLIENT_FILES if (path := getattr(tls, name, ""))}
    for certificate, key in (("certificate", "key"), ("client_certificate", "client_key")):
        if certificate in paths:
            paths.setdefault(key, paths[certificate])
    return replace(tls, **paths)


def served(tls: TlsServerSettings) -> TlsServerSettings:
    """What of a broker's settings is those of the name server beside it."""
    return TlsServerSettings(**{name: getattr(tls, name)
                                for name in TlsServerSettings.__struct_fields__})
