"""The options of every role: where the name servers are, who we are, how long to wait.

client.md 1.1; RocketMQ 4.9.8: ClientConfig. Times are seconds.
"""
from __future__ import annotations

import dataclasses
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import parse_qsl, unquote

from mqcore.client.core.options import check_known, positive_seconds, split_address
from mqcore.client.core.signature import Credentials
from mqcore.client.errors import ConfigError
from mqcore.client.events import EventListener
from mqcore.wire.codes import LanguageCode

NAMESRV_VARIABLE = "NAMESRV_ADDR"
URL_SCHEME = "rocketmq://"
_TLS_OPTIONS = ("tls", "ca", "crl", "cert", "key", "key_password_file")
_URL_OPTIONS = (*_TLS_OPTIONS, "instance_name", "unit_name")
Contexts = Callable[[str], ssl.SSLContext | None]
_TLS_WORDS = ("verify", "insecure", "off")


class ClientOptions(TypedDict, total=False):
    """The options of every role by name; `ClientConfig` says what they mean."""

    namesrv: str | Sequence[str] | None
    namesrv_domain: str
    namespace: str
    credentials: Credentials | tuple[str, str] | None
    tls: bool | ssl.SSLContext | Contexts
    instance_name: str | None
    unit_name: str
    unit_mode: bool
    stream: bool
    vip_channel: bool
    language: LanguageCode
    client_ip: str | None
    connect_timeout: float
    call_timeout: float
    route_interval: float
    heartbeat_interval: float
    persist_interval: float
    addresses: Mapping[str, str]
    on_event: EventListener | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The common options of an application's roles; checked when it is made.

    namesrv             `host:port;host:port`, a list of addresses, or a URL
                        `rocketmq://key:secret@host:9876;host2:9876/namespace?tls=verify`;
                        None: the environment's NAMESRV_ADDR
    namesrv_domain      a host of HTTP discovery, used without namesrv (remoting.md 2.7)
    namespace           prefix of all topics and groups (client.md 1.8)
    credentials         Credentials, or (access key, secret key): requests are signed (7.2)
    tls                 True: verify against the system's authorities; or an ssl.SSLContext (7.3);
                        or a function of `host:port`, which returns one, or None for no TLS
    instance_name       part of the client id; None: a unique one (1.2)
    unit_name           part of the client id and of the discovery URL (1.9)
    unit_mode           copied into headers and heartbeats (1.9)
    stream              ask for 5.x's stream requests: `@STREAM` in the id, `ReqT` in headers (1.9)
    vip_channel         sends go to the broker's port minus 2 (1.9)
    language            what requests say the client is written in
    client_ip           part of the client id; None: the address of this machine
    connect_timeout     of one connection, seconds
    call_timeout        of route, heartbeat and other small calls, seconds
    route_interval      seconds between two questions for the routes of known topics
    heartbeat_interval  seconds between two heartbeats to every broker
    persist_interval    seconds between two commits of consumers' offsets
    addresses           where to connect in place of an address that a broker registers, as one
                        behind NAT: {"10.0.0.5:10911": "broker.example:10911"}
    on_event            called with each Event (Connected, Disconnected, RouteChanged, Rebalanced,
                        SlowListener), in the thread of the role's event loop: it must not block
    Raises ConfigError, naming the option.
    """

    namesrv: str | Sequence[str] | None = None
    namesrv_domain: str = ""
    namespace: str = ""
    credentials: Credentials | tuple[str, str] | None = None
    tls: bool | ssl.SSLContext | Contexts = False
    instance_name: str | None = None
    unit_name: str = ""
    unit_mode: bool = False
    stream: bool = False
    vip_channel: bool = False
    language: LanguageCode = LanguageCode.PYTHON
    client_ip: str | None = None
    connect_timeout: float = 3.0
    call_timeout: float = 3.0
    route_interval: float = 30.0
    heartbeat_interval: float = 30.0
    persist_interval: float = 5.0
    addresses: Mapping[str, str] = field(default_factory=dict)
    on_event: EventListener | None = None

    def __post_init__(self) -> None:
        namesrv = os.environ.get(NAMESRV_VARIABLE, "") if self.namesrv is None else self.namesrv
        if isinstance(namesrv, str) and namesrv.startswith(URL_SCHEME):
            for name, value in _url_options(namesrv).items():
                object.__setattr__(self, name, value)
        else:
            object.__setattr__(self, "namesrv", split_addresses(namesrv))
        object.__setattr__(self, "credentials", _credentials(self.credentials))
        for name in ("connect_timeout", "call_timeout", "route_interval", "heartbeat_interval",
                     "persist_interval"):
            positive_seconds(getattr(self, name), name)
        for name in ("namespace", "unit_name"):
            value = getattr(self, name)
            if not isinstance(value, str) or not all(c.isalnum() or c in "_-" for c in value):
                raise ConfigError(f"{name} {value!r}: expected letters, digits, _ and -")
        for old, new in self.addresses.items():
            split_address(old)
            split_address(new)
        if self.on_event is not None and not callable(self.on_event):
            raise ConfigError(f"on_event {self.on_event!r}: expected a function")
        if not (isinstance(self.tls, bool | ssl.SSLContext) or callable(self.tls)):
            raise ConfigError(f"tls {self.tls!r}: expected True, False or an ssl.SSLContext")

    @property
    def name_servers(self) -> list[str]:
        """`host:port` of each name server that was given."""
        return list(self.namesrv or ())

    @property
    def account(self) -> Credentials | None:
        """The account that signs requests."""
        assert not isinstance(self.credentials, tuple)
        return self.credentials

    def ssl_context(self, address: str = "") -> ssl.SSLContext | None:
        """The TLS context of connections; None without TLS. address: the peer, as `host:port`."""
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        if callable(self.tls):
            return self.tls(address)
        return ssl.create_default_context() if self.tls else None


def client_config(
    options: Mapping[str, Any], config: ClientConfig | None = None, own: Sequence[str] = (),
) -> ClientConfig:
    """The configuration that `config`, changed by a role's keyword options, comes to.

    `own` are the other keyword parameters of the role: names that may have been meant. Raises
    ConfigError for an unknown option, naming the one nearest to it.
    """
    names = {each.name for each in dataclasses.fields(ClientConfig)}
    check_known([name for name in options if name not in names], names | set(own), "option")
    return dataclasses.replace(config or ClientConfig(), **options)


def _credentials(given: object) -> Credentials | None:
    """The account that signs requests. Raises ConfigError, which never shows the secret."""
    if given is None or isinstance(given, Credentials):
        return given
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        count = f" of {len(given)}" if isinstance(given, tuple) else ""
        raise ConfigError("credentials: expected Credentials or (access key, secret key), not"
                          f" {type(given).__name__}{count}")
    return Credentials(*given)


def split_addresses(text: str | Sequence[str]) -> tuple[str, ...]:
    """
    `host:port;host:port`, with commas as well, or a list, checked; raises ConfigError, naming the
    bad one.

    Of one `http://x/host:port` what follows the last slash counts, as in Java (client.md 1.5).
    """
    if not isinstance(text, str) and not (
            isinstance(text, Sequence) and all(isinstance(part, str) for part in text)):
        raise ConfigError(
            f"namesrv: expected host:port, a list or a URL, not {type(text).__name__}")
    if isinstance(text, str):
        if text.startswith(("http://", "https://")):
            text = text.rpartition("/")[2]
        text = text.replace(",", ";").split(";")
    addresses = tuple(part.strip() for part in text if part.strip())
    if any("@" in address or "://" in address for address in addresses):
        # Perhaps an account's: not to be shown.
        raise ConfigError(f"namesrv: expected host:port, or one URL that begins with {URL_SCHEME}")
    for address in addresses:
        split_address(address)
    return addresses


def _url_options(url: str) -> dict[str, Any]:
    """The options that a `rocketmq://` URL stands for."""
    rest, _, query = url.removeprefix(URL_SCHEME).partition("?")
    servers, _, namespace = rest.partition("/")
    account, found, hosts = servers.rpartition("@")
    given = dict(parse_qsl(query, keep_blank_values=True))
    if "@" in namespace or any("@" in name for name in given):
        raise ConfigError(
            f"namesrv {URL_SCHEME}...: expected / and ? of a key or secret as %2F and %3F")
    check_known(given, _URL_OPTIONS, "namesrv: URL option")
    options: dict[str, Any] = {"namesrv": split_addresses(hosts)}
    if not options["namesrv"]:
        raise ConfigError(f"namesrv {URL_SCHEME}...: expected at least one host:port")
    if found:
        key, _, secret = account.partition(":")
        options["credentials"] = Credentials(unquote(key), unquote(secret))
    if namespace:
        options["namespace"] = unquote(namespace)
    for name in ("instance_name", "unit_name"):
        if name in given:
            options[name] = given[name]
    if not given.keys().isdisjoint(_TLS_OPTIONS):
        options["tls"] = _tls_of(given)
    return options


def _tls_of(given: Mapping[str, str]) -> bool | ssl.SSLContext:
    word, authority, revoked = given.get("tls", "verify"), given.get("ca"), given.get("crl")
    if word not in _TLS_WORDS:
        raise ConfigError(f"namesrv: tls={word!r}: expected one of {', '.join(_TLS_WORDS)}")
    if word == "off":
        return False
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise ConfigError(f"namesrv: ca={authority!r}: {error}") from error
    if revoked is not None:
        _load_revoked(context, revoked)
    _load_own(context, given)
    if word == "insecure":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_own(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """The certificate to show, and its key."""
    certificate, file = given.get("cert"), given.get("key_password_file")
    if certificate is None:
        for name in ("key", "key_password_file"):
            if name in given:
                raise ConfigError(f"namesrv: {name}={given[name]!r}: expected cert=FILE beside it")
        return
    key = given.get("key", certificate)
    try:
        secret = "" if file is None else Path(file).read_text("utf-8").partition("\n")[0]
    except (OSError, ValueError) as error:
        raise ConfigError(f"namesrv: key_password_file={file!r}: {error}; expected a key's "
                          "password, in one line") from None
    try:
        context.load_cert_chain(certificate, key, lambda: secret)      # asks at no terminal
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"namesrv: cert={certificate!r}, key={key!r}: {error}; expected a certificate and its "
            "private key in PEM, and key_password_file=FILE if it is encrypted") from None


def _load_revoked(context: ssl.SSLContext, file: str) -> None:
    """Revocation lists; certificates among them would be trusted."""
    alone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        alone.load_verify_locations(file)
        context.load_verify_locations(file)
    except OSError as error:
        raise ConfigError(f"namesrv: crl={file!r}: {error}") from error
    found = alone.cert_store_stats()
    if not found["crl"] or found["x509"]:
        raise ConfigError(f"namesrv: crl={file!r}: expected only revocation lists, in PEM")
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
