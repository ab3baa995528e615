"""Admin: administration for code that blocks; each method is AsyncAdmin's of the same name."""
from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

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
    """
    Administration of a cluster, for code that blocks; use it with `with`.

    Parameters, results and errors are AsyncAdmin's.
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

    topics = _Waits(AsyncAdmin.topics)
    system_topics = _Waits(AsyncAdmin.system_topics)
    unit_topics = _Waits(AsyncAdmin.unit_topics)
    topic_route = _Waits(AsyncAdmin.topic_route)
    topic_clusters = _Waits(AsyncAdmin.topic_clusters)
    topic_groups = _Waits(AsyncAdmin.topic_groups)
    topic_stats = _Waits(AsyncAdmin.topic_stats)
    topic_configs = _Waits(AsyncAdmin.topic_configs)
    create_topic = _Waits(AsyncAdmin.create_topic)
    update_topic = _Waits(AsyncAdmin.update_topic)
    delete_topic = _Waits(AsyncAdmin.delete_topic)
    order = _Waits(AsyncAdmin.order)
    set_order = _Waits(AsyncAdmin.set_order)
    delete_order = _Waits(AsyncAdmin.delete_order)

    # -- groups -----------------------------------------------------------------------------------

    groups = _Waits(AsyncAdmin.groups)
    group_configs = _Waits(AsyncAdmin.group_configs)
    group_config = _Waits(AsyncAdmin.group_config)
    create_group = _Waits(AsyncAdmin.create_group)
    update_group = _Waits(AsyncAdmin.update_group)
    delete_group = _Waits(AsyncAdmin.delete_group)
    lag = _Waits(AsyncAdmin.lag)
    lags = _Waits(AsyncAdmin.lags)
    consume_time_spans = _Waits(AsyncAdmin.consume_time_spans)

    # -- offsets ----------------------------------------------------------------------------------

    max_offset = _Waits(AsyncAdmin.max_offset)
    min_offset = _Waits(AsyncAdmin.min_offset)
    offset_at = _Waits(AsyncAdmin.offset_at)
    earliest_store_time = _Waits(AsyncAdmin.earliest_store_time)
    committed = _Waits(AsyncAdmin.committed)
    set_offset = _Waits(AsyncAdmin.set_offset)
    all_offsets = _Waits(AsyncAdmin.all_offsets)
    delay_offsets = _Waits(AsyncAdmin.delay_offsets)
    clone_offsets = _Waits(AsyncAdmin.clone_offsets)
    correction_offsets = _Waits(AsyncAdmin.correction_offsets)
    client_offsets = _Waits(AsyncAdmin.client_offsets)
    reset_offsets = _Waits(AsyncAdmin.reset_offsets)

    # -- messages ---------------------------------------------------------------------------------

    message = _Waits(AsyncAdmin.message)
    message_at = _Waits(AsyncAdmin.message_at)
    query = _Waits(AsyncAdmin.query)
    read = _Waits(AsyncAdmin.read)
    queue_entries = _Waits(AsyncAdmin.queue_entries)
    consumed_by = _Waits(AsyncAdmin.consumed_by)
    consume_directly = _Waits(AsyncAdmin.consume_directly)

    # -- sending ----------------------------------------------------------------------------------

    send = _Waits(AsyncAdmin.send)
    resend = _Waits(AsyncAdmin.resend)
    send_times = _Waits(AsyncAdmin.send_times)
    dead_letters = _Waits(AsyncAdmin.dead_letters)
    resend_dead_letters = _Waits(AsyncAdmin.resend_dead_letters)

    # -- connected clients ------------------------------------------------------------------------

    members = _Waits(AsyncAdmin.members)
    producers = _Waits(AsyncAdmin.producers)
    all_producers = _Waits(AsyncAdmin.all_producers)
    running_info = _Waits(AsyncAdmin.running_info)
    group_status = _Waits(AsyncAdmin.group_status)
    plan = _Waits(AsyncAdmin.plan)

    # -- brokers ----------------------------------------------------------------------------------

    clusters = _Waits(AsyncAdmin.clusters)
    broker_status = _Waits(AsyncAdmin.broker_status)
    cluster_status = _Waits(AsyncAdmin.cluster_status)
    broker_config = _Waits(AsyncAdmin.broker_config)
    update_broker_config = _Waits(AsyncAdmin.update_broker_config)
    clean_expired_queues = _Waits(AsyncAdmin.clean_expired_queues)
    clean_unused_topics = _Waits(AsyncAdmin.clean_unused_topics)
    delete_expired_log = _Waits(AsyncAdmin.delete_expired_log)
    broker_lags = _Waits(AsyncAdmin.broker_lags)
    metadata = _Waits(AsyncAdmin.metadata)

    # -- statistics -------------------------------------------------------------------------------

    stats = _Waits(AsyncAdmin.stats)
    stats_all = _Waits(AsyncAdmin.stats_all)

    # -- traces -----------------------------------------------------------------------------------

    trace = _Waits(AsyncAdmin.trace)

    # -- transactions -----------------------------------------------------------------------------

    pending_transactions = _Waits(AsyncAdmin.pending_transactions)
    transaction = _Waits(AsyncAdmin.transaction)
    resume_transaction = _Waits(AsyncAdmin.resume_transaction)
    roll_back_transaction = _Waits(AsyncAdmin.roll_back_transaction)

    # -- name servers -----------------------------------------------------------------------------

    kv = _Waits(AsyncAdmin.kv)
    kv_of = _Waits(AsyncAdmin.kv_of)
    put_kv = _Waits(AsyncAdmin.put_kv)
    delete_kv = _Waits(AsyncAdmin.delete_kv)
    name_server_config = _Waits(AsyncAdmin.name_server_config)
    update_name_server_config = _Waits(AsyncAdmin.update_name_server_config)
    wipe_write_perm = _Waits(AsyncAdmin.wipe_write_perm)
    add_write_perm = _Waits(AsyncAdmin.add_write_perm)

    # -- access settings --------------------------------------------------------------------------

    update_acl = _Waits(AsyncAdmin.update_acl)
    delete_acl = _Waits(AsyncAdmin.delete_acl)
    update_white_addresses = _Waits(AsyncAdmin.update_white_addresses)
    acl_versions = _Waits(AsyncAdmin.acl_versions)
