"""
Protects the broker from groups that read far behind: they may not consume any more.

broker.md 1.3, 9.5 (RocketMQ 4.9.8: BrokerController, protect-broker). What such a group reads has
to come from the disk, and it pushes what others read out of memory. Off by default, as in stock.
"""
from __future__ import annotations

import logging

from mqcore.broker.core import Core
from mqcore.broker.ports import LastPull

PROTECT_INTERVAL_MS = 180_000        # also until the first look

_log = logging.getLogger(__name__)


def disable_slow_groups(core: Core, now_ms: int) -> list[str]:
    """
    Set consumeEnable=false for each group whose last pull of some queue found messages more than
    broker.consumer_fallbehind_threshold_bytes behind the log's end; returns their names.

    Nothing sets it back but an update of the group. It is not written to subscriptionGroup.json
    until some group is updated.
    """
    if not core.settings.broker.disable_consume_if_consumer_read_slowly:
        return []
    limit = core.settings.broker.consumer_fallbehind_threshold_bytes
    worst: dict[str, LastPull] = {}
    for pull in core.ports.pulls.last(limit):
        if core.topics.get(pull.topic) is None:          # deleted meanwhile
            continue
        if pull.group not in worst or pull.behind_bytes > worst[pull.group].behind_bytes:
            worst[pull.group] = pull
    disabled = [name for name in worst if core.groups.disable_consume(name, now_ms)]
    for name in disabled:
        pull = worst[name]
        _log.warning(
            "group %s reads too slowly and may not consume any more: its last pull of %s, queue "
            "%d, was %d bytes (%d ms) behind, broker.consumer_fallbehind_threshold_bytes is %d; "
            "update the group (mqadmin updateSubGroup -s true) to let it continue",
            name, pull.topic, pull.queue_id, pull.behind_bytes, pull.behind_ms, limit)
    return disabled
