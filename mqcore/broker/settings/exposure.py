"""Who can reach a listening address, and what that means (docs/security.md)."""
from __future__ import annotations

import ipaddress

from mqcore.broker.settings.model import Settings
from mqcore.tls.settings import TlsServerSettings

EVERY_ADDRESS = ("0.0.0.0", "::")
OPEN_WITH = "broker.listen_host and namesrv.listen_host, e.g. --set broker.listen_host=0.0.0.0"


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a listener at `host`, a name or an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_open(settings: Settings, *, embedded: bool) -> bool:
    """Whether other hosts reach a port of this run that asks nobody who he is."""
    if is_open_to_slaves(settings):
        return True
    acl = settings.acl
    asked = acl.enable and acl.namesrv_enable
    hosts = [settings.namesrv.listen_host] if embedded and not asked else []
    if not acl.enable:
        hosts.append(settings.broker.listen_host)
    return not (asks_for_certificates(settings.tls) or all(map(is_loopback, hosts)))


def is_open_to_slaves(settings: Settings) -> bool:
    """Whether other hosts may take the whole log: its port asks peers for nothing."""
    replication = settings.replication
    asks = replication.tls_mode == "enforcing" or (settings.guards_log and not any(
        ipaddress.ip_network(one, strict=False).prefixlen == 0
        for one in replication.unsigned_addresses))
    return replication.listen and not asks and not is_loopback(settings.broker.listen_host)


def asks_for_certificates(tls: TlsServerSettings) -> bool:
    """Whether nobody is let in who has no certificate of one of our authorities."""
    return tls.mode == "enforcing" and tls.client_auth == "require" and tls.verify_client


def of_name_server(host: str, port: int) -> str:
    """The same of one that other hosts reach and that asks nobody."""
    return (f"other hosts reach this name server ({host}:{port}) and it asks nobody who they are: "
            "see docs/security.md")


def warning(settings: Settings, *, embedded: bool) -> str:
    """What a start says once of addresses that do not fit their use, "" when there is nothing."""
    opened = is_open(settings, embedded=embedded)
    if is_open_to_slaves(settings) and (settings.acl.enable or asks_for_certificates(settings.tls)):
        return (f"other hosts reach the port of slaves ({settings.broker.listen_host}:"
                f"{settings.ha_port}), which hands the whole log to everyone who asks: see "
                "docs/security.md")
    if opened and settings.acl.enable:
        return of_name_server(settings.namesrv.listen_host, settings.namesrv.listen_port)
    if opened:
        return (f"other hosts reach this broker ({settings.broker.listen_host}:"
                f"{settings.broker.listen_port}) and nothing asks who they are: every peer may do "
                "everything; see docs/security.md")
    elsewhere = _elsewhere(settings)
    if is_loopback(settings.broker.listen_host) and elsewhere:
        return (f"clients of {';'.join(elsewhere)} on other hosts cannot reach this broker: it "
                f"listens at {settings.broker.listen_host} alone; set {OPEN_WITH}")
    return ""


def hint(settings: Settings) -> str:
    """How other hosts are let in, where none is and nothing speaks of any; else ""."""
    if not is_loopback(settings.broker.listen_host) or _elsewhere(settings):
        return ""
    return f"open to programs on this machine alone; other hosts: set {OPEN_WITH}"


def _elsewhere(settings: Settings) -> list[str]:
    """The name servers on other hosts."""
    return [addr for addr in settings.broker.namesrv_addrs
            if not is_loopback(addr.rpartition(":")[0].strip("[]"))]
