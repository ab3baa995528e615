"""
Administration: all that RocketMQ's mqadmin can do, as calls (client.md 6).

    async with AsyncAdmin("host:9876") as admin:
        await admin.create_topic("orders", queues=8)
        print((await admin.lag("billing")).total)

Reads that ask several brokers name those without an answer in `unreachable`; changes raise
AdminError, which names the brokers that failed and those that did what was asked.
"""
from typing import TYPE_CHECKING, Any

from mqcore.client.admin.acl import AclVersion
from mqcore.client.admin.asynchronous import AsyncAdmin
from mqcore.client.admin.brokers import BrokerStatus, Cluster, GroupBacklog, Metadata
from mqcore.client.admin.connections import (
    ClientConnection,
    GroupMembers,
    GroupStatus,
    ProcessQueueInfo,
    ProducerConnection,
    RunningInfo,
    TopicConsumption,
)
from mqcore.client.admin.groups import (
    GroupConfig,
    GroupLag,
    GroupOnBroker,
    QueueLag,
    QueueTimeSpan,
)
from mqcore.client.admin.link import AdminError, Found, Target, Unreachable
from mqcore.client.admin.messages import QueueEntries, StoredEntry
from mqcore.client.admin.offsets import ClientOffsets, GroupOffset, OffsetReset, QueueReset
from mqcore.client.admin.overview import TopicOnBroker
from mqcore.client.admin.pops import InFlight
from mqcore.client.admin.sending import DeadLetter, Resent, SendTime
from mqcore.client.admin.statistics import Stats, StatsWindow, TopicActivity
from mqcore.client.admin.timed import TimedMessages
from mqcore.client.admin.topics import QueuePositions, TopicStats
from mqcore.client.admin.traces import MessageTrace, TracedConsume, TracedEnd, TracedSend
from mqcore.client.admin.tracking import DirectResult, Track, TrackState
from mqcore.client.admin.transactions import HalfMessage

if TYPE_CHECKING:
    from mqcore.client.admin.blocking import Admin
else:                                   # a program for asyncio needs no thread's

    def __getattr__(name: str) -> Any:
        if name != "Admin":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from mqcore.client.admin.blocking import Admin
        return Admin

__all__ = [
    "AclVersion",
    "Admin",
    "AdminError",
    "AsyncAdmin",
    "BrokerStatus",
    "ClientConnection",
    "ClientOffsets",
    "Cluster",
    "DeadLetter",
    "DirectResult",
    "Found",
    "GroupBacklog",
    "GroupConfig",
    "GroupLag",
    "GroupMembers",
    "GroupOffset",
    "GroupOnBroker",
    "GroupStatus",
    "HalfMessage",
    "InFlight",
    "MessageTrace",
    "Metadata",
    "OffsetReset",
    "ProcessQueueInfo",
    "ProducerConnection",
    "QueueEntries",
    "QueueLag",
    "QueuePositions",
    "QueueReset",
    "QueueTimeSpan",
    "Resent",
    "RunningInfo",
    "SendTime",
    "Stats",
    "StatsWindow",
    "StoredEntry",
    "Target",
    "TimedMessages",
    "TopicActivity",
    "TopicConsumption",
    "TopicOnBroker",
    "TopicStats",
    "TracedConsume",
    "TracedEnd",
    "TracedSend",
    "Track",
    "TrackState",
    "Unreachable",
]
