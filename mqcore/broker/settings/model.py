"""
Every setting of the broker: its name, type, bounds and default (docs/configuration.md).

Stock names and defaults: broker.md 15 (RocketMQ 4.9.8: BrokerConfig, MessageStoreConfig,
NettyServerConfig).
"""
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mqcore.broker.settings.delay_levels import parse_delay_levels
from mqcore.replication.role import Role
from mqcore.store.log.folders import LogFolders
from mqcore.tls.settings import TlsSettings

MIB = 1 << 20
Port = Annotated[int, Meta(ge=1, le=65535)]
Positive = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Name = Annotated[str, Meta(max_length=127)]
Hour = Annotated[int, Meta(ge=0, le=23)]


class SettingsError(ValueError):
    """A setting is wrong; the text names its source, its key, its value, what was expected."""


class BrokerSettings(Struct, frozen=True, kw_only=True):
    """Who this broker is, and how it treats clients."""

    name: Name = ""                                   # "" = host name (filled in by load)
    cluster: Annotated[str, Meta(min_length=1, max_length=127)] = "DefaultCluster"
    id: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)] = 0
    listen_host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    listen_port: Port = 10911
    fast_port_enable: bool = True
    advertised_ip: str = ""                           # "" = of the host, or found (by load)
    advertised_host: Annotated[str, Meta(max_length=253)] = ""      # "" = advertised_ip
    permission: Annotated[int, Meta(ge=0, le=6)] = 6
    namesrv_addrs: tuple[str, ...] = ()
    register_interval_ms: Annotated[int, Meta(ge=10_000, le=60_000)] = 30_000
    register_timeout_ms: Positive = 6_000
    force_register: bool = True
    auto_create_topic: bool = True
    auto_create_group: bool = True
    default_topic_queue_count: Annotated[int, Meta(ge=1, le=65535)] = 8
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    trace_topic_name: Annotated[str, Meta(min_length=1, max_length=127)] = "RMQ_SYS_TRACE_TOPIC"
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    store_reply_messages: bool = True
    reject_transaction_message: bool = False
    timer_messages: Literal["at_time", "refuse", "at_once"] = "at_time"
    timer_max_delay_s: Annotated[int, Meta(ge=1, le=3_650 * 86_400)] = 40 * 86_400
    transaction_timeout_ms: Annotated[int, Meta(ge=0, le=1 << 53)] = 6_000
    transaction_check_interval_ms: Positive = 60_000
    transaction_check_max: Annotated[int, Meta(ge=0, le=1_000_000)] = 15
    accept_sends_from_ms: Annotated[int, Meta(ge=0, le=1 << 53)] = 0
    notify_consumers_enable: bool = True
    long_polling_enable: bool = True
    pop_enable: bool = False
    short_polling_ms: Positive = 1_000
    client_expiry_ms: Positive = 120_000
    queue_lock_expiry_ms: Positive = 60_000
    slave_read_enable: bool = False
    disable_consume_if_consumer_read_slowly: bool = False
    consumer_fallbehind_threshold_bytes: Annotated[int, Meta(ge=0, le=1 << 53)] = 16 << 30
    property_filter_enable: bool = True
    filter_retry_enable: bool = False
    filter_clean_ms: Positive = 86_400_000
    filter_bits_enable: bool = False
    filter_error_percent: Annotated[int, Meta(ge=1, le=99)] = 20
    filter_expected_count: Annotated[int, Meta(ge=1, le=1024)] = 32
    message_delay_levels: str = (
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )
    offsets_persist_interval_ms: Annotated[int, Meta(ge=1, le=600_000)] = 5_000
    consumer_offsets_bytes_max: Annotated[int, Meta(ge=MIB, le=2 << 30)] = 512 * MIB
    delay_offsets_persist_interval_ms: Annotated[int, Meta(ge=1, le=600_000)] = 10_000


class StoreSettings(Struct, frozen=True, kw_only=True):
    """Where the messages are, how they reach the disk, and what one pull may take."""

    path: Annotated[str, Meta(min_length=1)] = "~/.mqcore/store"
    flush: Literal["async", "sync", "transient-pool"] = "async"
    commit_log_paths: tuple[str, ...] = ()            # () = "commitlog" below path
    commit_log_read_only_paths: tuple[str, ...] = ()
    segment_size_bytes: Annotated[int, Meta(ge=4096, le=(1 << 31) - 4096)] = 1 << 30
    queue_file_entry_count: Annotated[int, Meta(ge=1, le=100_000_000)] = 300_000
    queue_extension_enable: bool = False
    queue_extension_file_bytes: Annotated[int, Meta(ge=1024, le=(1 << 31) - 4096)] = 48 * MIB
    multi_dispatch_enable: bool = False
    light_queues_enable: bool = False
    light_queue_count_max: Annotated[int, Meta(ge=1, le=4_000_000)] = 20_000
    index_enable: bool = True
    index_slot_count: Annotated[int, Meta(ge=1, le=80_000_000)] = 5_000_000
    index_entry_count: Annotated[int, Meta(ge=2, le=80_000_000)] = 20_000_000
    flush_interval_ms: Positive = 500
    flush_least_pages: Count = 4
    flush_thorough_interval_ms: Positive = 10_000
    commit_interval_ms: Positive = 200
    commit_least_pages: Count = 4
    commit_thorough_interval_ms: Positive = 200
    pool_bytes: Annotated[int, Meta(ge=MIB, le=1 << 40)] = 64 * MIB
    warm_segments: bool = False
    checkpoint_interval_ms: Positive = 10_000
    dispatch_stall_ms: Annotated[int, Meta(ge=1_000, le=(1 << 31) - 1)] = 5_000
    dispatch_behind_bytes_max: Annotated[int, Meta(ge=64 * MIB, le=1 << 50)] = 4 << 30
    sync_flush_timeout_ms: Positive = 5_000
    sync_show_unflushed: bool = False
    message_size_max_bytes: Annotated[int, Meta(ge=10, le=15 * MIB)] = 4 * MIB
    transfer_memory_bytes_max: Positive = 262_144
    transfer_memory_count_max: Positive = 32
    transfer_disk_bytes_max: Positive = 65_536
    transfer_disk_count_max: Positive = 8
    transfer_replay_bytes_max: Annotated[int, Meta(ge=1, le=8 * MIB)] = 131_072
    transfer_replay_count_max: Positive = 1_024
    memory_ratio_percent: Annotated[int, Meta(ge=0, le=100)] = 40
    delete_when_hours: tuple[Hour, ...] = (4,)
    reserved_hours: Annotated[int, Meta(ge=0, le=1_000_000)] = 72
    disk_used_max_percent: Annotated[int, Meta(ge=1, le=100)] = 75
    disk_clean_percent: Annotated[int, Meta(ge=1, le=100)] = 85
    disk_clean_enable: bool = True
    disk_refuse_percent: Annotated[int, Meta(ge=1, le=100)] = 90
    clean_interval_ms: Positive = 10_000
    clean_pause_ms: Count = 100
    query_count_max: Annotated[int, Meta(ge=1, le=1024)] = 64
    query_unique_count_max: Annotated[int, Meta(ge=1, le=1024)] = 32


class ProcessSettings(Struct, frozen=True, kw_only=True):
    """How many processes work, and the bounds of what they share."""

    serving_count: Annotated[int, Meta(ge=0, le=16)] = 0
    shared_memory: Literal["auto", "named", "memfd"] = "auto"
    topic_count_max: Annotated[int, Meta(ge=64, le=1_000_000)] = 16_384
    queue_count_max: Annotated[int, Meta(ge=2_048, le=4_000_000)] = 131_072
    group_count_max: Annotated[int, Meta(ge=64, le=1_000_000)] = 16_384
    subscription_count_max: Annotated[int, Meta(ge=64, le=1_000_000)] = 65_536
    connection_count_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    connection_idle_ms: Positive = 120_000
    held_pull_count_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 100_000
    stop_timeout_ms: Annotated[int, Meta(ge=1_000, le=86_400_000)] = 60_000
    connection_memory_bytes: Annotated[int, Meta(ge=64 * MIB, le=1 << 40)] = 256 * MIB


class LimitSettings(Struct, frozen=True, kw_only=True):
    """What one client address, and one account, may use; 0: without a limit (docs/security.md)."""

    address_connection_count: Count = 0
    address_in_flight_count: Count = 0
    address_bytes_per_s: Count = 0
    address_messages_per_s: Count = 0
    account_connection_count: Count = 0
    account_in_flight_count: Count = 0
    account_bytes_per_s: Count = 0
    account_messages_per_s: Count = 0
    exempt_addresses: tuple[str, ...] = ()


class EmbeddedNamesrvSettings(Struct, frozen=True, kw_only=True):
    """The name server that `mqcore up` runs beside the broker."""

    embedded: bool = True
    listen_host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    listen_port: Port = 9876


class AclSettings(Struct, frozen=True, kw_only=True):
    """Who may do what."""

    enable: bool = False
    folder: str = ""                                  # "" = that of the settings file, or ~/.mqcore
    stock_permissions: bool = False
    table_bytes_max: Annotated[int, Meta(ge=65_536, le=1 << 30)] = 32 * MIB
    audit: Literal["text", "json", "off"] = "text"
    audit_lines_per_second: Annotated[int, Meta(ge=1, le=100_000)] = 100
    namesrv_enable: bool = True                       # the name server beside it asks as well
    namesrv_routes: Literal["free", "checked"] = "free"
    client_access_key: str = ""
    client_secret_key_file: str = ""


class ReplicationSettings(Struct, frozen=True, kw_only=True):
    """Brokers of one name: a master, and slaves that follow its log (docs/replication.md)."""

    role: Role = Role.ASYNC_MASTER
    listen: bool = False
    port: Annotated[int, Meta(ge=0, le=65535)] = 0    # 0 = broker.listen_port + 1
    advertised_host: Annotated[str, Meta(max_length=253)] = ""      # "" = the broker's
    master_address: Annotated[str, Meta(max_length=259)] = ""       # "" = name servers say it
    slave_fallbehind_max_bytes: Annotated[int, Meta(ge=1, le=1 << 53)] = 256 * MIB
    transfer_batch_bytes: Annotated[int, Meta(ge=4096, le=2 * MIB)] = 32_768
    heartbeat_interval_ms: Annotated[int, Meta(ge=100, le=600_000)] = 5_000
    housekeeping_interval_ms: Annotated[int, Meta(ge=1_000, le=3_600_000)] = 20_000
    slave_timeout_ms: Annotated[int, Meta(ge=1, le=600_000)] = 3_000
    min_in_sync: Annotated[int, Meta(ge=1, le=16)] = 1
    read_replicated_only: bool | Literal["auto"] = "auto"     # with failover.enable
    metadata_interval_ms: Annotated[int, Meta(ge=100, le=600_000)] = 10_000
    unsigned_addresses: tuple[str, ...] = ()
    tls_mode: Literal["disabled", "permissive", "enforcing"] = "permissive"
    master_tls: bool = False


class FailoverSettings(Struct, frozen=True, kw_only=True):
    """Brokers of one name elect by etcd who of them leads (docs/replication.md)."""

    enable: bool = False
    etcd: tuple[str, ...] = ("http://127.0.0.1:2379",)
    lease_seconds: Annotated[int, Meta(ge=1, le=600)] = 2
    in_sync_timeout_ms: Annotated[int, Meta(ge=100, le=600_000)] = 3_000
    request_timeout_ms: Annotated[int, Meta(ge=10, le=1_000)] = 500
    etcd_ca_file: str = ""                            # "" = the system's authorities
    etcd_cert_file: str = ""
    etcd_key_file: str = ""
    etcd_user: Annotated[str, Meta(max_length=255)] = ""
    etcd_password_file: str = ""


FAILOVER_FILES = ("etcd_ca_file", "etcd_cert_file", "etcd_key_file", "etcd_password_file")


class HttpSettings(Struct, frozen=True, kw_only=True):
    """Metrics, health and the page over HTTP (docs/metrics.md, docs/page.md)."""

    enable: bool = False
    listen: Annotated[str, Meta(max_length=259)] = "127.0.0.1:10980"
    page: bool = True
    write: bool = False
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    protobuf: tuple[str, ...] = ()                    # TOPIC=FILE:MESSAGE
    masks: tuple[str, ...] = ()                       # TOPIC=KIND:WHAT (masks.py)
    unmasked: tuple[str, ...] = ()
    metrics_topics_max: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    metrics_groups_max: Annotated[int, Meta(ge=1, le=100_000)] = 5_000
    otlp_endpoint: Annotated[str, Meta(max_length=2048)] = ""
    otlp_interval_ms: Annotated[int, Meta(ge=1_000, le=3_600_000)] = 60_000

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of `listen`."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def otlp_url(self) -> str:
        """`otlp_endpoint` with its path."""
        scheme, _, rest = self.otlp_endpoint.partition("://")
        host, _, path = rest.partition("/")
        return self.otlp_endpoint if path else f"{scheme}://{host}/v1/metrics"


class GrpcSettings(Struct, frozen=True, kw_only=True):
    """The port of RocketMQ 5's clients, which speak gRPC (docs/grpc.md)."""

    enable: bool = False
    listen_port: Port = 8081


class LogSettings(Struct, frozen=True, kw_only=True):
    """What the processes write about themselves."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    file: str = ""                                    # "" = standard error
    file_bytes_max: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    file_count: Annotated[int, Meta(ge=1, le=1_000)] = 5
    format: Literal["text", "json"] = "text"


class StockReport(Struct, frozen=True, kw_only=True):
    """What a stock broker.conf held that has no effect here."""

    unknown: tuple[str, ...] = ()           # not a key of 4.9.8
    without_effect: tuple[str, ...] = ()    # a key of 4.9.8 that nothing here listens to

    def warning(self) -> str:
        """One line for the log, "" when there is nothing to say."""
        parts = []
        if self.unknown:
            parts.append("unknown keys: " + ", ".join(self.unknown))
        if self.without_effect:
            parts.append("keys without effect here: " + ", ".join(self.without_effect))
        return "; ".join(parts)


def bracketed(host: str) -> str:
    """A host as it stands before a port: IPv6 addresses in brackets, which all clients read."""
    return f"[{host}]" if ":" in host else host


class Settings(Struct, frozen=True, kw_only=True):
    """All settings of one broker. The first eleven fields are the sections of the TOML file."""

    broker: BrokerSettings = BrokerSettings()
    store: StoreSettings = StoreSettings()
    processes: ProcessSettings = ProcessSettings()
    limits: LimitSettings = LimitSettings()
    namesrv: EmbeddedNamesrvSettings = EmbeddedNamesrvSettings()
    log: LogSettings = LogSettings()
    tls: TlsSettings = TlsSettings()
    acl: AclSettings = AclSettings()
    replication: ReplicationSettings = ReplicationSettings()
    failover: FailoverSettings = FailoverSettings()
    http: HttpSettings = HttpSettings()
    grpc: GrpcSettings = GrpcSettings()
    file: str = ""                          # the file that was given, "" when none
    stock: StockReport = StockReport()
    follows: bool = False                   # elections: another one leads, as far as is known

    @property
    def advertised_addr(self) -> str:
        """`host:port` that name servers hand to clients."""
        host = self.broker.advertised_host or self.broker.advertised_ip
        return f"{bracketed(host)}:{self.broker.listen_port}"

    @property
    def store_addr(self) -> str:
        """`ip:port`, the store host of messages."""
        return f"{bracketed(self.broker.advertised_ip)}:{self.broker.listen_port}"

    @property
    def fast_port(self) -> int | None:
        """The "VIP" port, listen_port - 2 (broker.md 1.1); None when switched off."""
        return self.broker.listen_port - 2 if self.broker.fast_port_enable else None

    @property
    def serves_pop(self) -> bool:
        """Whether its last serving process has the state of POP (docs/protocol/pop.md)."""
        return self.grpc.enable or self.broker.pop_enable

    @property
    def is_slave(self) -> bool:
        """Whether it follows another broker's log, and takes no messages of its own."""
        return self.role is Role.SLAVE

    @property
    def has_master(self) -> bool:
        """Whether it asks a master for its tables; a master that was overtaken asks none."""
        return self.replication.role is Role.SLAVE or (self.failover.enable and self.follows)

    @property
    def role(self) -> Role:
        """What it is now in its set; where that is elected it changes while it runs."""
        return Role.SLAVE if self.follows else self.replication.role

    @property
    def broker_id(self) -> int:
        """As name servers have it: who was elected is 0."""
        return 0 if self.failover.enable and not self.follows else self.broker.id

    @property
    def shows_replicated_only(self) -> bool:
        """Whether consumers see only what slaves have: at a slave, what its master says of that."""
        only = self.replication.read_replicated_only
        return only if isinstance(only, bool) else self.failover.enable

    @property
    def hands_log_on(self) -> bool:
        """
        Whether it sends its log to others: a slave does, too, what it has itself; where it is
        elected who leads, that one alone.
        """
        return self.replication.listen and not self.follows

    @property
    def guards_log(self) -> bool:
        """Whether slaves have to show the cluster's account: where clients say who they are."""
        return self.acl.enable or self.tls.client_auth == "require"

    @property
    def asks_slaves_for_certificates(self) -> bool:
        """Whether a slave that comes by TLS has to show a certificate, which is verified."""
        return self.replication.tls_mode == "enforcing" or (
            self.tls.client_auth == "require" and self.tls.verify_client)

    @property
    def ha_port(self) -> int:
        """The port at which slaves ask for the log."""
        return self.replication.port or self.broker.listen_port + 1

    @property
    def ha_addr(self) -> str:
        """`host:port` that name servers hand to slaves (haServerAddr)."""
        host = (self.replication.advertised_host or self.broker.advertised_host
                or self.broker.advertised_ip)
        return f"{bracketed(host)}:{self.ha_port}"

    @property
    def own_namesrv_addr(self) -> str:
        """`host:port` by which the broker reaches the name server beside it."""
        host = self.namesrv.listen_host
        own = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        return f"{bracketed(own)}:{self.namesrv.listen_port}"

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delays of level 1, 2, ... in ms."""
        return parse_delay_levels(self.broker.message_delay_levels)

    @property
    def store_root(self) -> Path:
        """The store's folder."""
        return Path(self.store.path)

    @property
    def log_folders(self) -> LogFolders:
        """Where the commit log lies (store.md 6.7)."""
        return LogFolders(
            tuple(map(Path, self.store.commit_log_paths)) or (self.store_root / "commitlog",),
            tuple(map(Path, self.store.commit_log_read_only_paths)), self.store_root)

    @property
    def acl_folder(self) -> Path:
        """Where plain_acl.yml and acl/ are."""
        return Path(self.acl.folder)

    @property
    def config_dir(self) -> Path:
        """The folder of topics.json, subscriptionGroup.json, consumerOffset.json (store.md 1)."""
        return self.store_root / "config"


SECTIONS: dict[str, type[Struct]] = {
    "broker": BrokerSettings,
    "store": StoreSettings,
    "processes": ProcessSettings,
    "limits": LimitSettings,
    "namesrv": EmbeddedNamesrvSettings,
    "log": LogSettings,
    "tls": TlsSettings,
    "acl": AclSettings,
    "replication": ReplicationSettings,
    "failover": FailoverSettings,
    "http": HttpSettings,
    "grpc": GrpcSettings,
}
