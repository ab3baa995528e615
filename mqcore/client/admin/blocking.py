"""Admin: administration for code that blocks; each method is AsyncAdmin's of the same name."""
from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, Unpack

from mqcore.client.admin.asynchronous import AsyncAdmin
from mqcore.client.admin.link import TIME_LIMIT_S, TIMEOUT_S
from mqcore.client.config import ClientConfig, ClientOptions
from mqcore.client.roles.blocking import BlockingRole

P = ParamSpec("P")
R = TypeVar("R")


def _waits(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate[Admin, P], R]:
    """A method with the name, the parameters and the text of an asyncio one, for which it waits."""
    @functools.wraps(method)
    def wait(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._call(functools.partial(method, self._role), *args, **kwargs)

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

    # -- methods of AsyncAdmin: `make settings` writes them ----------------------------------------

    # topics
    topics: Final = _waits(AsyncAdmin.topics)
    system_topics: Final = _waits(AsyncAdmin.system_topics)
    unit_topics: Final = _waits(AsyncAdmin.unit_topics)
    topic_route: Final = _waits(AsyncAdmin.topic_route)
    topic_clusters: Final = _waits(AsyncAdmin.topic_clusters)
    topic_groups: Final = _waits(AsyncAdmin.topic_groups)
    topic_stats: Final = _waits(AsyncAdmin.topic_stats)
    topic_configs: Final = _waits(AsyncAdmin.topic_configs)
    create_topic: Final = _waits(AsyncAdmin.create_topic)
    update_topic: Final = _waits(AsyncAdmin.update_topic)
    delete_topic: Final = _waits(AsyncAdmin.delete_topic)
    order: Final = _waits(AsyncAdmin.order)
    set_order: Final = _waits(AsyncAdmin.set_order)
    delete_order: Final = _waits(AsyncAdmin.delete_order)

    # groups
    groups: Final = _waits(AsyncAdmin.groups)
    group_configs: Final = _waits(AsyncAdmin.group_configs)
    group_config: Final = _waits(AsyncAdmin.group_config)
    create_group: Final = _waits(AsyncAdmin.create_group)
    update_group: Final = _waits(AsyncAdmin.update_group)
    delete_group: Final = _waits(AsyncAdmin.delete_group)
    lag: Final = _waits(AsyncAdmin.lag)
    lags: Final = _waits(AsyncAdmin.lags)
    consume_time_spans: Final = _waits(AsyncAdmin.consume_time_spans)

    # offsets
    max_offset: Final = _waits(AsyncAdmin.max_offset)
    min_offset: Final = _waits(AsyncAdmin.min_offset)
    offset_at: Final = _waits(AsyncAdmin.offset_at)
    earliest_store_time: Final = _waits(AsyncAdmin.earliest_store_time)
    committed: Final = _waits(AsyncAdmin.committed)
    set_offset: Final = _waits(AsyncAdmin.set_offset)
    all_offsets: Final = _waits(AsyncAdmin.all_offsets)
    delay_offsets: Final = _waits(AsyncAdmin.delay_offsets)
    clone_offsets: Final = _waits(AsyncAdmin.clone_offsets)
    correction_offsets: Final = _waits(AsyncAdmin.correction_offsets)
    client_offsets: Final = _waits(AsyncAdmin.client_offsets)
    reset_offsets: Final = _waits(AsyncAdmin.reset_offsets)

    # messages
    message: Final = _waits(AsyncAdmin.message)
    message_at: Final = _waits(AsyncAdmin.message_at)
    query: Final = _waits(AsyncAdmin.query)
    read: Final = _waits(AsyncAdmin.read)
    queue_entries: Final = _waits(AsyncAdmin.queue_entries)

    # sending
    send: Final = _waits(AsyncAdmin.send)
    resend: Final = _waits(AsyncAdmin.resend)
    recall: Final = _waits(AsyncAdmin.recall)
    send_times: Final = _waits(AsyncAdmin.send_times)
    dead_letters: Final = _waits(AsyncAdmin.dead_letters)
    resend_dead_letters: Final = _waits(AsyncAdmin.resend_dead_letters)
    resent_before: Final = _waits(AsyncAdmin.resent_before)

    # deliveries
    consumed_by: Final = _waits(AsyncAdmin.consumed_by)
    consume_directly: Final = _waits(AsyncAdmin.consume_directly)

    # connected clients
    members: Final = _waits(AsyncAdmin.members)
    producers: Final = _waits(AsyncAdmin.producers)
    all_producers: Final = _waits(AsyncAdmin.all_producers)
    running_info: Final = _waits(AsyncAdmin.running_info)
    group_status: Final = _waits(AsyncAdmin.group_status)
    plan: Final = _waits(AsyncAdmin.plan)

    # brokers
    clusters: Final = _waits(AsyncAdmin.clusters)
    broker_status: Final = _waits(AsyncAdmin.broker_status)
    cluster_status: Final = _waits(AsyncAdmin.cluster_status)
    broker_standing: Final = _waits(AsyncAdmin.broker_standing)
    broker_config: Final = _waits(AsyncAdmin.broker_config)
    update_broker_config: Final = _waits(AsyncAdmin.update_broker_config)
    clean_expired_queues: Final = _waits(AsyncAdmin.clean_expired_queues)
    clean_unused_topics: Final = _waits(AsyncAdmin.clean_unused_topics)
    delete_expired_log: Final = _waits(AsyncAdmin.delete_expired_log)
    broker_lags: Final = _waits(AsyncAdmin.broker_lags)
    metadata: Final = _waits(AsyncAdmin.metadata)

    # all masters at a time
    topics_on_brokers: Final = _waits(AsyncAdmin.topics_on_brokers)
    groups_on_brokers: Final = _waits(AsyncAdmin.groups_on_brokers)
    backlogs: Final = _waits(AsyncAdmin.backlogs)
    offsets_on_brokers: Final = _waits(AsyncAdmin.offsets_on_brokers)
    groups_by_topic: Final = _waits(AsyncAdmin.groups_by_topic)

    # POP
    in_flight: Final = _waits(AsyncAdmin.in_flight)

    # statistics
    stats: Final = _waits(AsyncAdmin.stats)
    stats_all: Final = _waits(AsyncAdmin.stats_all)

    # traces
    trace: Final = _waits(AsyncAdmin.trace)

    # times of delivery
    timed_messages: Final = _waits(AsyncAdmin.timed_messages)

    # transactions
    pending_transactions: Final = _waits(AsyncAdmin.pending_transactions)
    transaction: Final = _waits(AsyncAdmin.transaction)
    resume_transaction: Final = _waits(AsyncAdmin.resume_transaction)
    roll_back_transaction: Final = _waits(AsyncAdmin.roll_back_transaction)

    # name servers
    kv: Final = _waits(AsyncAdmin.kv)
    kv_of: Final = _waits(AsyncAdmin.kv_of)
    put_kv: Final = _waits(AsyncAdmin.put_kv)
    delete_kv: Final = _waits(AsyncAdmin.delete_kv)
    name_server_config: Final = _waits(AsyncAdmin.name_server_config)
    update_name_server_config: Final = _waits(AsyncAdmin.update_name_server_config)
    wipe_write_perm: Final = _waits(AsyncAdmin.wipe_write_perm)
    add_write_perm: Final = _waits(AsyncAdmin.add_write_perm)

    # access settings
    update_acl: Final = _waits(AsyncAdmin.update_acl)
    delete_acl: Final = _waits(AsyncAdmin.delete_acl)
    update_white_addresses: Final = _waits(AsyncAdmin.update_white_addresses)
    acl_versions: Final = _waits(AsyncAdmin.acl_versions)
