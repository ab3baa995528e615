"""Admin: administration for code that blocks; each method is AsyncAdmin's of the same name."""
from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from mqcore.client.admin.asynchronous import AsyncAdmin
from mqcore.client.admin.link import TIME_LIMIT_S, TIMEOUT_S
from mqcore.client.blocking import BlockingRole
from mqcore.client.config import ClientConfig, ClientOptions

P = ParamSpec("P")
R = TypeVar("R")


class _Waits(Generic[P, R]):
    """A method with the parameters of an asyncio one, which it calls and waits for."""

    def __init__(
        self, method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]]
    ) -> None:
        self._method = method
        self.__doc__ = method.__doc__
        self.__wrapped__ = method

    @overload
    def __get__(self, admin: None, owner: type) -> Self: ...

    @overload
    def __get__(self, admin: Admin, owner: type) -> Callable[P, R]: ...

    def __get__(self, admin: Admin | None, owner: type) -> Self | Callable[P, R]:
        if admin is None:
            return self
        method = self._method

        @functools.wraps(method)
        def wait(*args: P.args, **kwargs: P.kwargs) -> R:
            return admin._call(functools.partial(method, admin._role), *args, **kwargs)

        return wait


class Admin(BlockingRole[AsyncAdmin]):
    """Administration of a cluster, for code that blocks; use it with `with`.

    Methods raise what those of AsyncAdmin raise, for which they wait.
    """

    def __init__(
        self, name_servers: str | Sequence[str] | None = None, /, *,
        config: ClientConfig | None = None, timeout: float = TIMEOUT_S,
        time_limit: float = TIME_LIMIT_S, **options: Unpack[ClientOptions],
    ) -> None:
        """As AsyncAdmin."""
        super().__init__(AsyncAdmin(
            name_servers, config=config, timeout=timeout, time_limit=time_limit, **options))

    # -- topics -----------------------------------------------------------------------------------

    topics: Final = _Waits(AsyncAdmin.topics)
    system_topics: Final = _Waits(AsyncAdmin.system_topics)
    unit_topics: Final = _Waits(AsyncAdmin.unit_topics)
    topic_route: Final = _Waits(AsyncAdmin.topic_route)
    topic_clusters: Final = _Waits(AsyncAdmin.topic_clusters)
    topic_groups: Final = _Waits(AsyncAdmin.topic_groups)
    topic_stats: Final = _Waits(AsyncAdmin.topic_stats)
    topic_configs: Final = _Waits(AsyncAdmin.topic_configs)
    create_topic: Final = _Waits(AsyncAdmin.create_topic)
    update_topic: Final = _Waits(AsyncAdmin.update_topic)
    delete_topic: Final = _Waits(AsyncAdmin.delete_topic)
    order: Final = _Waits(AsyncAdmin.order)
    set_order: Final = _Waits(AsyncAdmin.set_order)
    delete_order: Final = _Waits(AsyncAdmin.delete_order)

    # -- groups -----------------------------------------------------------------------------------

    groups: Final = _Waits(AsyncAdmin.groups)
    group_configs: Final = _Waits(AsyncAdmin.group_configs)
    group_config: Final = _Waits(AsyncAdmin.group_config)
    create_group: Final = _Waits(AsyncAdmin.create_group)
    update_group: Final = _Waits(AsyncAdmin.update_group)
    delete_group: Final = _Waits(AsyncAdmin.delete_group)
    lag: Final = _Waits(AsyncAdmin.lag)
    lags: Final = _Waits(AsyncAdmin.lags)
    consume_time_spans: Final = _Waits(AsyncAdmin.consume_time_spans)

    # -- offsets ----------------------------------------------------------------------------------

    max_offset: Final = _Waits(AsyncAdmin.max_offset)
    min_offset: Final = _Waits(AsyncAdmin.min_offset)
    offset_at: Final = _Waits(AsyncAdmin.offset_at)
    earliest_store_time: Final = _Waits(AsyncAdmin.earliest_store_time)
    committed: Final = _Waits(AsyncAdmin.committed)
    set_offset: Final = _Waits(AsyncAdmin.set_offset)
    all_offsets: Final = _Waits(AsyncAdmin.all_offsets)
    delay_offsets: Final = _Waits(AsyncAdmin.delay_offsets)
    clone_offsets: Final = _Waits(AsyncAdmin.clone_offsets)
    correction_offsets: Final = _Waits(AsyncAdmin.correction_offsets)
    client_offsets: Final = _Waits(AsyncAdmin.client_offsets)
    reset_offsets: Final = _Waits(AsyncAdmin.reset_offsets)

    # -- messages ---------------------------------------------------------------------------------

    message: Final = _Waits(AsyncAdmin.message)
    message_at: Final = _Waits(AsyncAdmin.message_at)
    query: Final = _Waits(AsyncAdmin.query)
    read: Final = _Waits(AsyncAdmin.read)
    queue_entries: Final = _Waits(AsyncAdmin.queue_entries)
    consumed_by: Final = _Waits(AsyncAdmin.consumed_by)
    consume_directly: Final = _Waits(AsyncAdmin.consume_directly)

    # -- sending ----------------------------------------------------------------------------------

    send: Final = _Waits(AsyncAdmin.send)
    resend: Final = _Waits(AsyncAdmin.resend)
    send_times: Final = _Waits(AsyncAdmin.send_times)
    dead_letters: Final = _Waits(AsyncAdmin.dead_letters)
    resend_dead_letters: Final = _Waits(AsyncAdmin.resend_dead_letters)

    # -- connected clients ------------------------------------------------------------------------

    members: Final = _Waits(AsyncAdmin.members)
    producers: Final = _Waits(AsyncAdmin.producers)
    all_producers: Final = _Waits(AsyncAdmin.all_producers)
    running_info: Final = _Waits(AsyncAdmin.running_info)
    group_status: Final = _Waits(AsyncAdmin.group_status)
    plan: Final = _Waits(AsyncAdmin.plan)

    # -- brokers ----------------------------------------------------------------------------------

    clusters: Final = _Waits(AsyncAdmin.clusters)
    broker_status: Final = _Waits(AsyncAdmin.broker_status)
    cluster_status: Final = _Waits(AsyncAdmin.cluster_status)
    broker_config: Final = _Waits(AsyncAdmin.broker_config)
    update_broker_config: Final = _Waits(AsyncAdmin.update_broker_config)
    clean_expired_queues: Final = _Waits(AsyncAdmin.clean_expired_queues)
    clean_unused_topics: Final = _Waits(AsyncAdmin.clean_unused_topics)
    delete_expired_log: Final = _Waits(AsyncAdmin.delete_expired_log)
    broker_lags: Final = _Waits(AsyncAdmin.broker_lags)
    metadata: Final = _Waits(AsyncAdmin.metadata)

    # -- all masters at a time --------------------------------------------------------------------

    topics_on_brokers: Final = _Waits(AsyncAdmin.topics_on_brokers)
    groups_on_brokers: Final = _Waits(AsyncAdmin.groups_on_brokers)
    backlogs: Final = _Waits(AsyncAdmin.backlogs)
    offsets_on_brokers: Final = _Waits(AsyncAdmin.offsets_on_brokers)
    groups_by_topic: Final = _Waits(AsyncAdmin.groups_by_topic)

    # -- statistics -------------------------------------------------------------------------------

    stats: Final = _Waits(AsyncAdmin.stats)
    stats_all: Final = _Waits(AsyncAdmin.stats_all)

    # -- traces -----------------------------------------------------------------------------------

    trace: Final = _Waits(AsyncAdmin.trace)

    # -- transactions -----------------------------------------------------------------------------

    pending_transactions: Final = _Waits(AsyncAdmin.pending_transactions)
    transaction: Final = _Waits(AsyncAdmin.transaction)
    resume_transaction: Final = _Waits(AsyncAdmin.resume_transaction)
    roll_back_transaction: Final = _Waits(AsyncAdmin.roll_back_transaction)

    # -- name servers -----------------------------------------------------------------------------

    kv: Final = _Waits(AsyncAdmin.kv)
    kv_of: Final = _Waits(AsyncAdmin.kv_of)
    put_kv: Final = _Waits(AsyncAdmin.put_kv)
    delete_kv: Final = _Waits(AsyncAdmin.delete_kv)
    name_server_config: Final = _Waits(AsyncAdmin.name_server_config)
    update_name_server_config: Final = _Waits(AsyncAdmin.update_name_server_config)
    wipe_write_perm: Final = _Waits(AsyncAdmin.wipe_write_perm)
    add_write_perm: Final = _Waits(AsyncAdmin.add_write_perm)

    # -- access settings --------------------------------------------------------------------------

    update_acl: Final = _Waits(AsyncAdmin.update_acl)
    delete_acl: Final = _Waits(AsyncAdmin.delete_acl)
    update_white_addresses: Final = _Waits(AsyncAdmin.update_white_addresses)
    acl_versions: Final = _Waits(AsyncAdmin.acl_versions)
