"""The rules of settings that need more than one key, or the machine."""
from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct

from mqcore.broker.settings.delay_levels import parse_delay_levels
from mqcore.broker.settings.model import BrokerSettings, Settings, SettingsError
from mqcore.broker.settings.values import Values, shown_value, wrong
from mqcore.store.paths import folder_name_trouble
from mqcore.tls.settings import SECRETS
from mqcore.tls.settings import trouble as tls_trouble
from mqcore.wire.printable import label_trouble

RECORD_SLACK_BYTES = 65_536        # header, topic and properties beside the largest body
BLANK_SIZE_BYTES = 8               # the record that ends a segment (store.md 2.8)
PAGE_SIZE_BYTES = 4_096
STORE_PATH_BYTES_MAX = 3_800       # the native side has buffers of 4,096 bytes for paths
LABELS = {                         # bytes: the first two are names of topics as well
    "name": 127, "cluster": 127 - len("_REPLY_TOPIC"), "region_id": 256,
}
EXEMPT_MAX = 64                    # native: mqcore/net/serving/limits.pxd
BYTES_PER_S_MIN = 65_536           # a heartbeat behind a large frame waits for it
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
    if broker.advertised_ip and not _is_ipv4(broker.advertised_ip):
        refuse("broker.advertised_ip", "an IPv4 address, or nothing to find one")
    if broker.advertised_host and not HOST_NAME.fullmatch(broker.advertised_host):
        refuse("broker.advertised_host", "a host name or an IPv4 address")
    if broker.fast_port_enable and broker.listen_port < 3:
        refuse("broker.listen_port", "3 or more, since the fast port is 2 below it")
    if settings.namesrv.embedded and settings.namesrv.listen_port in (
        broker.listen_port, settings.fast_port,
    ):
        refuse("namesrv.listen_port", "a port that the broker does not use itself")
    for addr in broker.namesrv_addrs:
        host, _, port = addr.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            refuse("broker.namesrv_addrs", f"host:port in each entry, not {shown_value(addr)}")
    try:
        parse_delay_levels(broker.message_delay_levels)
    except ValueError as error:
        refuse("broker.message_delay_levels", str(error))
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
    for one in settings.limits.exempt_addresses:
        if address_range(one) is None:
            refuse("limits.exempt_addresses", "addresses or networks (10.0.0.7, 10.1.0.0/16, "
                   f"fd00::/8), at most {EXEMPT_MAX} of them, not {shown_value(one)}")
    if len(settings.limits.exempt_addresses) > EXEMPT_MAX:
        refuse("limits.exempt_addresses", f"at most {EXEMPT_MAX} of them")
    for whose in ("address", "account"):
        rate = getattr(settings.limits, f"{whose}_bytes_per_s")
        if 0 < rate < BYTES_PER_S_MIN:
            refuse(f"limits.{whose}_bytes_per_s", f"0, or {BYTES_PER_S_MIN} or more")
    odd = tls_trouble(settings.tls)
    if odd is not None:
        key, wanted = odd
        if key in SECRETS:
            raise SettingsError(f"{values.source(f'tls.{key}')}: tls.{key}: expected {wanted}")
        refuse(f"tls.{key}", wanted)
    try:
        filled.log_folders.text()
    except ValueError as error:
        refuse("store.commit_log_paths", str(error))


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
    The IPv4 address that records carry when none is set: that of `advertised_host`, else the one
    that is listened at, else the first one of this machine. Raises SettingsError for a host that
    has none.
    """
    if not broker.advertised_host:
        at = "127.0.0.1" if broker.listen_host == "localhost" else broker.listen_host
        return at if _is_ipv4(at) and at != "0.0.0.0" else first_address()
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


def _is_ipv4(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, text)
    except OSError:
        return False
    return True
