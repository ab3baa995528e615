"""
Who is connected: producers and consumers by group, from heartbeats until their connection ends.

broker.md 7.1 to 7.3 (RocketMQ 4.9.8: ProducerManager, ConsumerManager, ConsumerGroupInfo). Pure
tables: every call that changes a consumer group says which groups' members have to be told.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field

from mqcore.broker.request import ROWS_A_TURN, FieldError
from mqcore.broker.tables.config_table import fits
from mqcore.broker.tables.groups import GROUP_LENGTH_MAX
from mqcore.broker.tables.subscriptions import CLUSTERING, ConsumerEntry
from mqcore.broker.tables.topics import TOPIC_LENGTH_MAX
from mqcore.wire.tags import Subscription

GROUPS_OF_A_CONNECTION_MAX = 4_096
PRODUCER_GROUP_COUNT_MAX = 65_536       # beyond that, empty ones are forgotten

# group, topic, subscription (None: gone), message model
Publish = Callable[[str, str, Subscription | None, str], None]


@dataclass(slots=True)
class Client:
    """One connection as a member of a group."""

    connection: int
    client_id: str
    language: int | None
    version: int
    remote: str
    heartbeat_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """The online part of a consumer group; every heartbeat overwrites its first three fields."""

    name: str
    consume_type: str | None = None
    message_model: str = CLUSTERING
    from_where: str | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    members: dict[int, Client] = field(default_factory=dict)


@dataclass(slots=True)
class _Memberships:
    client_id: str = ""                    # of a producer
    last: Client | None = None             # as its last heartbeat registered it everywhere ...
    said: object = None                    # ... what that said ...
    changes: object = None                 # ... and how many changes there were by then
    producers: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)


class ClientTables:
    """Both tables, and the groups of each connection."""

    def __init__(
        self, publish: Publish, subscription_count_max: int,
        gone: Callable[[str], None] = lambda _: None,
    ) -> None:
        """gone: told of each consumer group whose last member has left."""
        self._publish = publish
        self._gone = gone
        self._subscription_count_max = subscription_count_max
        self._subscription_count = 0
        self.changes = 0                   # of who is here and what they subscribe
        self._connections: dict[int, _Memberships] = {}
        self._producer_connections: dict[str, int] = {}     # client id -> its newest connection
        self.producers: dict[str, dict[int, Client]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}

    def repeated(self, connection: int, said: object, changes: object, now_ms: int) -> bool:
        """
        Whether this heartbeat is the connection's last one again, and nothing has changed since:
        then it is registered, at this time.
        """
        memberships = self._connections.get(connection)
        if (memberships is None or memberships.last is None or memberships.said != said
                or memberships.changes != changes):
            return False
        memberships.last.heartbeat_ms = now_ms
        return True

    def remember(self, client: Client, said: object, changes: object) -> None:
        """All that a heartbeat says is registered now."""
        memberships = self._connections.get(client.connection)
        if memberships is not None:
            memberships.last, memberships.said, memberships.changes = client, said, changes

    def register_producer(self, group: str, client: Client) -> None:
        """A heartbeat named `group` as a producer group of this connection."""
        memberships = self._memberships(client.connection)
        _join(memberships.producers, group, memberships)
        members = self.producers.setdefault(group, {})
        if client.connection not in members:
            self.changes += 1
        members[client.connection] = client
        memberships.client_id = client.client_id
        self._producer_connections[client.client_id] = client.connection

    def register_consumer(self, entry: ConsumerEntry, client: Client) -> bool:
        """
        A heartbeat named a consumer group. True when its members have to be told: a new member, a
        topic more or less; a newer version of a known subscription is none (broker.md 7.2).

        Raises FieldError when there is no room for its subscriptions.
        """
        group = self.consumers.get(entry.group)
        growth = len(entry.subscriptions) - (len(group.subscriptions) if group else 0)
        if self._subscription_count + growth > self._subscription_count_max:
            raise FieldError(
                f"body: the broker has no room for the subscriptions of group {entry.group}:"
                f" expected at most {self._subscription_count_max} of all groups together"
            )
        memberships = self._memberships(client.connection)
        _join(memberships.consumers, entry.group, memberships)
        if group is None:
            group = self.consumers[entry.group] = ConsumerGroup(entry.group)
        changed = client.connection not in group.members
        group.members[client.connection] = client
        model_changed = group.message_model != entry.message_model
        if changed or (group.consume_type, group.message_model, group.from_where) != (
                entry.consume_type, entry.message_model, entry.from_where):
            self.changes += 1
        group.consume_type = entry.consume_type
        group.message_model = entry.message_model
        group.from_where = entry.from_where
        return self._subscribe(group, entry.subscriptions, model_changed) or changed

    def unregister(
        self, connection: int, producer_group: str | None, consumer_group: str | None
    ) -> list[str]:
        """UNREGISTER_CLIENT of this connection; returns the consumer groups to tell."""
        memberships = self._connections.get(connection)
        if memberships is None:
            return []
        if producer_group is not None and producer_group in memberships.producers:
            memberships.producers.discard(producer_group)
            self._leave_producers(producer_group, connection, keep_empty=False)
            if not memberships.producers:
                self._forget_producer(memberships, connection)
        changed = []
        if consumer_group is not None and consumer_group in memberships.consumers:
            memberships.consumers.discard(consumer_group)
            self._leave_consumers(consumer_group, connection)
            changed.append(consumer_group)
        if not memberships.producers and not memberships.consumers:
            del self._connections[connection]
        return changed

    def connection_closed(self, connection: int) -> list[str]:
        """Forget a connection; returns the consumer groups to tell."""
        memberships = self._connections.pop(connection, None)
        if memberships is None:
            return []
        for group in memberships.producers:
            self._leave_producers(group, connection, keep_empty=True)
        self._forget_producer(memberships, connection)
        for group in memberships.consumers:
            self._leave_consumers(group, connection)
        return sorted(memberships.consumers)

    def connections(self) -> list[int]:
        """The connections that sent a heartbeat."""
        return list(self._connections)

    def expired(self, oldest_ms: int) -> Generator[None, None, list[int]]:
        """
        The connections with a membership whose last heartbeat is older than `oldest_ms`; with
        pauses.
        """
        stale = set()
        for number, members in enumerate(self._all_members(), 1):
            stale |= {client.connection for client in list(members)
                      if client.heartbeat_ms < oldest_ms}
            if number % ROWS_A_TURN == 0 or len(members) > ROWS_A_TURN:
                yield
        return sorted(stale)

    def producer_connection(self, client_id: str) -> int | None:
        """The connection of a client that is a producer; None when it is not connected."""
        return self._producer_connections.get(client_id)

    def consumer_ids(self, group: str) -> list[str]:
        """The client ids of a group's members (38)."""
        found = self.consumers.get(group)
        if found is None:
            return []
        return sorted({client.client_id for client in found.members.values()})

    def members(self, group: str) -> list[int]:
        """The connections of a consumer group."""
        found = self.consumers.get(group)
        return list(found.members) if found is not None else []

    def groups_on(self, topic: str) -> set[str]:
        """The groups whose members subscribe a topic."""
        return {name for name, group in self.consumers.items() if topic in group.subscriptions}

    def subscription(self, group: str, topic: str) -> Subscription | None:
        found = self.consumers.get(group)
        return found.subscriptions.get(topic) if found is not None else None

    def _show(self, group: ConsumerGroup, topic: str, subscription: Subscription | None) -> None:
        """Publish what pulls can name; nobody can make a topic or group with a longer name."""
        if fits(topic, TOPIC_LENGTH_MAX) and fits(group.name, GROUP_LENGTH_MAX):
            self._publish(group.name, topic, subscription, group.message_model)

    def _memberships(self, connection: int) -> _Memberships:
        return self._connections.setdefault(connection, _Memberships())

    def _subscribe(
        self, group: ConsumerGroup, wanted: dict[str, Subscription], model_changed: bool
    ) -> bool:
        changed = False
        for topic, subscription in wanted.items():
            known = group.subscriptions.get(topic)
            newer = known is None or subscription.version_ms > known.version_ms
            latest = subscription if known is None or newer else known
            if latest is not known:
                self.changes += 1
            if newer or model_changed:
                self._show(group, topic, latest)
            group.subscriptions[topic] = latest
            if known is None:
                self._subscription_count += 1
                changed = True
        for topic in [topic for topic in group.subscriptions if topic not in wanted]:
            self._unsubscribe(group, topic)
            changed = True
        return changed

    def _unsubscribe(self, group: ConsumerGroup, topic: str) -> None:
        self.changes += 1
        del group.subscriptions[topic]
        self._subscription_count -= 1
        self._show(group, topic, None)

    def _leave_producers(self, group: str, connection: int, *, keep_empty: bool) -> None:
        """A closed connection leaves an empty group, UNREGISTER removes it (remoting.md 4.4)."""
        self.changes += 1
        members = self.producers.get(group)
        if members is None:
            return
        members.pop(connection, None)
        if not members and not (keep_empty and len(self.producers) <= PRODUCER_GROUP_COUNT_MAX):
            del self.producers[group]

    def _forget_producer(self, memberships: _Memberships, connection: int) -> None:
        if self._producer_connections.get(memberships.client_id) == connection:
            del self._producer_connections[memberships.client_id]

    def _leave_consumers(self, group: str, connection: int) -> None:
        self.changes += 1
        found = self.consumers.get(group)
        if found is None:
            return
        found.members.pop(connection, None)
        if not found.members:
            for topic in list(found.subscriptions):
                self._unsubscribe(found, topic)
            del self.consumers[group]
            self._gone(group)

    def _all_members(self) -> Iterator[Collection[Client]]:
        """Of each group that there is now and when its turn comes."""
        for producers in list(self.producers.values()):
            yield producers.values()
        for group in list(self.consumers.values()):
            yield group.members.values()


def _join(groups: set[str], group: str, memberships: _Memberships) -> None:
    count = len(memberships.producers) + len(memberships.consumers)
    if group not in groups and count >= GROUPS_OF_A_CONNECTION_MAX:
        raise FieldError(f"body: more than {GROUPS_OF_A_CONNECTION_MAX} groups on one connection")
    groups.add(group)
