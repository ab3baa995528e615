"""The rules of settings that need more than one key, or the machine."""
from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import struct

from mqcore.broker.settings.delay_levels import parse_delay_levels
from mqcore.broker.settings.exposure import is_loopback
from mqcore.broker.settings.model import BrokerSettings, Settings, SettingsError
from mqcore.broker.settings.values import Values
from mqcore.layout import EXEMPT_MAX
from mqcore.participants import SERVING
from mqcore.replication.role import Role
from mqcore.store.paths import folder_name_trouble
from mqcore.tls.settings import SECRETS
from mqcore.tls.settings import trouble as tls_trouble
from mqcore.wire.expected import PORT_MAX, is_address, shown_value, wrong
from mqcore.wire.printable import label_trouble

RECORD_SLACK_BYTES = 65_536        # header, topic and properties beside the largest body
BLANK_SIZE_BYTES = 8               # the record that ends a segment (store.md 2.8)
PAGE_SIZE_BYTES = 4_096
STORE_PATH_BYTES_MAX = 3_800       # the native side has buffers of 4,096 bytes for paths
LABELS = {                         # bytes: the first two are names of topics as well
    "name": 127, "cluster": 127 - len("_REPLY_TOPIC"), "region_id": 256,
}
HOURS_MAX = 24                     # of a day
ETCD_MAX = 16
PROTOBUF_LINE = re.compile(r"[^=\s]{1,127}=[^\n]{1,4096}:[A-Za-z_][\w.]{0,511}", re.ASCII)
PROTOBUF_MAX = 1_000
USER_LINE = re.compile(r"[\w.@-]{1,64}:scrypt:[0-9]{1,2}:[0-9a-f]{32}:[0-9a-f]{64}", re.ASCII)
PAGE_USERS_MAX = 1_000
BYTES_PER_S_MIN = 65_536           # a heartbeat behind a large frame waits for it
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
EVERY_ADDRESS = ("0.0.0.0", "::")
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_SIOCGIFADDR = 0x8915              # Linux: the IPv4 address of an interface


def check(settings: Settings, filled: Settings, values: Values) -> None:
    """
    The rules that need more than one key, or more than a range. Raises SettingsError.

    filled  the same with nothing left empty and whole paths
    """

    def refuse(key: str, wanted: str) -> None:
        section, _, name = key.partition(".")
        value = getattr(getattr(settings, section), name)
        raise SettingsError(wrong(values.source(key), key, value, wanted))

    broker, store = settings.broker, settings.store
    for name, bytes_max in LABELS.items():
        trouble = label_trouble(getattr(broker, name), bytes_max)
        if trouble is not None:
            refuse(f"broker.{name}", trouble)
    if folder_name_trouble(broker.trace_topic_name) is not None:
        refuse("broker.trace_topic_name", "a name that a folder can have")
    if broker.permission not in (2, 4, 6):
        refuse("broker.permission", "2 (write), 4 (read) or 6 (both)")
    if broker.advertised_ip and not _is_ip(broker.advertised_ip):
        refuse("broker.advertised_ip", "an IPv4 or IPv6 address, or nothing to find one")
    if broker.advertised_host and not HOST_NAME.fullmatch(broker.advertised_host):
        refuse("broker.advertised_host", "a host name or an IPv4 address")
    if broker.fast_port_enable and broker.listen_port < 3:
        refuse("broker.listen_port", "3 or more, since the fast port is 2 below it")
    if settings.namesrv.embedded and settings.namesrv.listen_port in (
        broker.listen_port, settings.fast_port,
    ):
        refuse("namesrv.listen_port", "a port that the broker does not use itself")
    for addr in broker.namesrv_addrs:
        if not is_address(addr):
            refuse("broker.namesrv_addrs", f"host:port in each entry, not {shown_value(addr)}")
    try:
        parse_delay_levels(broker.message_delay_levels)
    except ValueError as error:
        refuse("broker.message_delay_levels", str(error))
    if len(store.delete_when_hours) > HOURS_MAX:
        refuse("store.delete_when_hours", f"at most {HOURS_MAX} hours, each once")
    largest = store.message_size_max_bytes + RECORD_SLACK_BYTES + BLANK_SIZE_BYTES
    if store.segment_size_bytes <= largest:
        refuse(
            "store.segment_size_bytes",
            f"more than {largest} (store.message_size_max_bytes + 64 KiB + 8)",
        )
    if store.segment_size_bytes % PAGE_SIZE_BYTES:
        refuse("store.segment_size_bytes", f"a multiple of {PAGE_SIZE_BYTES}")
    for key in ("commit_log_paths", "commit_log_read_only_paths"):
        paths = getattr(store, key)
        if any(not path or "\n" in path for path in paths) or len(set(paths)) < len(paths):
            refuse(f"store.{key}", "different paths, none of them empty or of several lines")
    root_bytes = len(os.fsencode(filled.store.path))
    if root_bytes > STORE_PATH_BYTES_MAX:
        refuse("store.path", f"a path of at most {STORE_PATH_BYTES_MAX} bytes, not {root_bytes}: "
               "the names of queues and files follow")
    for key, addresses in (
            ("limits.exempt_addresses", settings.limits.exempt_addresses),
            ("replication.unsigned_addresses", settings.replication.unsigned_addresses)):
        for one in addresses:
            if address_range(one) is None:
                refuse(key, "addresses or networks (10.0.0.7, 10.1.0.0/16, fd00::/8), at most "
                            f"{EXEMPT_MAX} of them, not {shown_value(one)}")
        if len(addresses) > EXEMPT_MAX:
            refuse(key, f"at most {EXEMPT_MAX} of them")
    for whose in ("address", "account"):
        rate = getattr(settings.limits, f"{whose}_bytes_per_s")
        if 0 < rate < BYTES_PER_S_MIN:
            refuse(f"limits.{whose}_bytes_per_s", f"0, or {BYTES_PER_S_MIN} or more")
    found = replication_trouble(settings)
    if found is not None:
        refuse(*found)
    odd = tls_trouble(settings.tls, elsewhere=settings.replication.tls_mode == "enforcing")
    if odd is not None:
        key, wanted = odd
        if key in SECRETS:
            raise SettingsError(f"{values.source(f'tls.{key}')}: tls.{key}: expected {wanted}")
        refuse(f"tls.{key}", wanted)
    if not is_address(settings.http.listen):
        refuse("http.listen", "host:port")
    scheme, _, rest = settings.http.otlp_endpoint.partition("://")
    if settings.http.otlp_endpoint and not _is_url(f"{scheme}://{rest.partition('/')[0]}"):
        refuse("http.otlp_endpoint", "http://host:port or https://host:port, and a path if need be")
    if settings.grpc.enable and settings.grpc.listen_port in _ports(settings):
        refuse("grpc.listen_port", "a port that the broker does not use itself")
    if settings.serves_pop and settings.processes.serving_count >= SERVING.count_max:
        refuse("processes.serving_count",
               f"at most {SERVING.count_max - 1} with grpc.enable or broker.pop_enable")
    if settings.grpc.enable and settings.replication.role is Role.SLAVE:
        refuse("grpc.enable", "false at a slave: clients of gRPC are served by masters")
    if settings.broker.pop_enable and settings.replication.role is Role.SLAVE:
        refuse("broker.pop_enable", "false at a slave: POP is served by masters")
    if settings.http.enable and settings.http.address[1] in _ports(settings):
        refuse("http.listen", "a port that the broker does not use itself")
    http_odd = page_trouble(settings)
    if http_odd is not None:
        refuse(*http_odd)
    if bool(settings.acl.client_access_key) != bool(settings.acl.client_secret_key_file):
        refuse("acl.client_access_key", "its secret key in the file acl.client_secret_key_file, or "
               "neither of them")
    try:
        filled.log_folders.text()
    except ValueError as error:
        refuse("store.commit_log_paths", str(error))


def page_trouble(settings: Settings) -> tuple[str, str] | None:
    """A key of [http] that does not fit, and what is expected there; None: all fit."""
    http = settings.http
    for line in http.users:
        if not USER_LINE.fullmatch(line):
            # the line has a hash, which a message does not repeat
            raise SettingsError("http.users: expected lines that `mqcore dashboard user NAME` "
                                "prints")
    names = [line.partition(":")[0] for line in http.users]
    if len(set(names)) < len(names) or len(names) > PAGE_USERS_MAX:
        raise SettingsError(f"http.users: expected at most {PAGE_USERS_MAX} different names")
    if not all(HOST_NAME.fullmatch(host) for host in http.hosts):
        return "http.hosts", "names of hosts, without ports"
    if not all(map(PROTOBUF_LINE.fullmatch, http.protobuf)) or len(http.protobuf) > PROTOBUF_MAX:
        return "http.protobuf", f"at most {PROTOBUF_MAX:,} lines TOPIC=FILE:MESSAGE"
    if http.masks:
        from mqcore.broker.settings import masks  # only where it is used

        try:
            masks.all_parsed(http.masks)
        except ValueError as error:
            raise SettingsError(f"http.masks: {error}; expected {masks.EXPECTED}") from None
    if len(http.unmasked) > PAGE_USERS_MAX or not all(http.unmasked):
        return "http.unmasked", f"at most {PAGE_USERS_MAX} names of users"
    if http.enable and http.page and not is_loopback(http.address[0]) and not (
            http.users or settings.acl.enable):
        return "http.listen", ("an address of this machine only, such as 127.0.0.1:10980: the page "
                               "would ask other hosts for no account. Give http.users, "
                               "acl.enable, or http.page = false")
    return None


def replication_trouble(settings: Settings) -> tuple[str, str] | None:
    """What does not fit the broker's role: a key, and what is expected of it there."""
    broker, replication = settings.broker, settings.replication
    if replication.master_address and not is_address(replication.master_address):
        return "replication.master_address", "host:port, or nothing to learn it from name servers"
    if replication.advertised_host and not HOST_NAME.fullmatch(replication.advertised_host):
        return "replication.advertised_host", "a host name or an IPv4 address"
    odd = _secured_trouble(settings)
    if odd is not None:
        return odd
    if settings.failover.enable:
        return _failover_trouble(settings) or _port_trouble(settings)
    if replication.role is Role.SLAVE:
        if broker.id == 0:
            return "broker.id", "1 or more in a slave, another number in each slave of a master"
        if not broker.namesrv_addrs and not replication.master_address:
            return ("broker.namesrv_addrs",
                    "a name server that knows the master, or replication.master_address")
        if settings.store.flush == "transient-pool":
            return "store.flush", '"async" or "sync" in a slave'
        if replication.listen and _is_own_ha(settings, replication.master_address):
            return "replication.master_address", "another broker's address, not this one's own"
        return _port_trouble(settings) if replication.listen else None
    if broker.id != 0:
        return "broker.id", f'0 with replication.role = "{replication.role}"'
    if not replication.listen:
        if replication.role is Role.SYNC_MASTER or settings.shows_replicated_only:
            return ("replication.listen",
                    "true, since nobody could have what this broker waits for")
        return None
    return _port_trouble(settings)


def _secured_trouble(settings: Settings) -> tuple[str, str] | None:
    """The same of TLS at the port of slaves."""
    replication, tls = settings.replication, settings.tls
    if replication.tls_mode == "enforcing" and not (
            tls.trust and tls.mode != "disabled" and (tls.certificate or tls.test_mode)):
        return ("replication.tls_mode", '"permissive" or "disabled", unless tls.certificate and '
                "tls.trust are set: slaves show a certificate that one of the latter has signed")
    if replication.master_tls and not tls.client_enable:
        return ("replication.master_tls", "false, since tls.client_enable is not set, by whose "
                "settings a broker goes to others")
    if settings.failover.enable and replication.tls_mode == "enforcing" and (
            not replication.master_tls):
        return ("replication.master_tls", 'true with replication.tls_mode = "enforcing" and '
                "failover.enable, since every member may have to follow another one")
    return None


def _failover_trouble(settings: Settings) -> tuple[str, str] | None:
    """The same of a broker whose set elects who leads."""
    broker, replication, failover = settings.broker, settings.replication, settings.failover
    if replication.role is not Role.SYNC_MASTER:
        return ("replication.role", '"sync-master" with failover.enable: who leads is elected, and '
                "every member may have to")
    if not replication.listen:
        return "replication.listen", "true with failover.enable: the others follow who leads"
    if broker.id == 0:
        return ("broker.id", "1 or more with failover.enable, another number in each member: who "
                "leads is 0 for clients by itself")
    if not broker.namesrv_addrs:
        return "broker.namesrv_addrs", "a name server, by which clients find who leads"
    if replication.master_address:
        return "replication.master_address", "nothing with failover.enable: etcd says who leads"
    if settings.store.flush == "transient-pool":
        return "store.flush", '"async" or "sync" with failover.enable'
    if not failover.etcd or len(failover.etcd) > ETCD_MAX or not all(map(_is_url, failover.etcd)):
        return "failover.etcd", f"1 to {ETCD_MAX} addresses, http://host:port or https://host:port"
    if 2 * failover.request_timeout_ms > 1000 * failover.lease_seconds:
        return ("failover.request_timeout_ms", "at most half of failover.lease_seconds, so that a "
                "lost answer does not lose the lease")
    if bool(failover.etcd_cert_file) != bool(failover.etcd_key_file):
        return "failover.etcd_cert_file", "its key in failover.etcd_key_file, or neither of them"
    if bool(failover.etcd_user) != bool(failover.etcd_password_file):
        return ("failover.etcd_user", "its password in the file failover.etcd_password_file, or "
                "neither of them")
    return None


def _ports(settings: Settings) -> list[int | None]:
    """Those for clients."""
    ports = [settings.broker.listen_port, settings.fast_port]
    return [*ports, settings.namesrv.listen_port] if settings.namesrv.embedded else ports


def _port_trouble(settings: Settings) -> tuple[str, str] | None:
    if settings.ha_port in _ports(settings) or settings.ha_port > PORT_MAX:
        return "replication.port", "a port that nothing else here uses, or 0 for listen_port + 1"
    return None


def _is_own_ha(settings: Settings, address: str) -> bool:
    """Whether a slave would follow itself: that works, and nothing ever comes."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not address or int(port) != settings.ha_port:
        return False
    broker = settings.broker
    own = {broker.listen_host, broker.advertised_ip, broker.advertised_host,
           settings.replication.advertised_host}
    return host in own or (
        host in LOCAL_HOSTS and broker.listen_host in (*LOCAL_HOSTS, *EVERY_ADDRESS))


def _is_url(text: str) -> bool:
    scheme, mark, rest = text.partition("://")
    return bool(mark) and scheme in ("http", "https") and is_address(rest)


def address_range(text: str) -> tuple[bytes, int] | None:
    """An address or a network: its bytes, and how many bits of them count; None: it is neither."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    return network.network_address.packed, network.prefixlen


def host_name() -> str:
    """The name of this machine, stock's default broker name."""
    return socket.gethostname() or "DEFAULT_BROKER"


def advertised_ip(broker: BrokerSettings) -> str:
    """
    The address that records carry when none is set: the IPv4 address of `advertised_host`, else the
    one that is listened at, else the first IPv4 address of this machine. Raises SettingsError for
    a host that has none, or an address that other hosts cannot use.
    """
    if not broker.advertised_host:
        at = "127.0.0.1" if broker.listen_host == "localhost" else broker.listen_host
        if "%" in at:
            raise SettingsError(
                f'broker.listen_host = "{at}": names an interface of this host, which says nothing '
                "to clients; set broker.advertised_host to what they are to connect to")
        return at if _is_ip(at) and at not in EVERY_ADDRESS else first_address()
    if not HOST_NAME.fullmatch(broker.advertised_host):
        return ""                      # refused by its own rule
    try:
        return socket.gethostbyname(broker.advertised_host)
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            f'broker.advertised_host = "{broker.advertised_host}": has no IPv4 address ({error}); '
            "set broker.advertised_ip too, or mend the name") from None


def first_address() -> str:
    """The first IPv4 address that is not of the loopback interface, else 127.0.0.1 (brokerIP1)."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:        # this interface has no IPv4 address
                continue
            address = socket.inet_ntoa(reply[20:24])
            if not address.startswith("127."):
                return address
    return "127.0.0.1"


def _is_ip(text: str, families: tuple[int, ...] = (socket.AF_INET, socket.AF_INET6)) -> bool:
    for family in families:
        with contextlib.suppress(OSError):
            socket.inet_pton(family, text)
            return True
    return False
