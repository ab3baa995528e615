"""
Who is connected: producers and consumers by group, from heartbeats until their connection ends.

broker.md 7.1 to 7.3 (RocketMQ 4.9.8: ProducerManager, ConsumerManager, ConsumerGroupInfo). Pure
tables: every call that changes a consumer group says which groups' members have to be told.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field

from mqcore.broker.request import ROWS_A_TURN, FieldError
from mqcore.broker.tables.config_table import TablesFull, fits
from mqcore.broker.tables.groups import GROUP_LENGTH_MAX
from mqcore.broker.tables.shares import Room
from mqcore.broker.tables.subscriptions import CLUSTERING, ConsumerEntry, bytes_of
from mqcore.layout import TOPIC_LENGTH_MAX
from mqcore.wire.tags import Subscription

GROUPS_OF_A_CONNECTION_MAX = 4_096
EMPTY_GROUPS_BYTES_MAX = 16 << 20       # of producers; beyond that they are forgotten
CLIENTS_BYTES_MIN = 64 << 20            # of all that heartbeats said ...
BYTES_PER_SUBSCRIPTION = 4_096          # ... or that for each that there may be
MEMBER_BYTES = 600                      # of memory, beside its texts
EMPTY_GROUP_BYTES = 250
LET_GO_A_TURN = 1_000                   # subscriptions that are freed between two pauses

# group, topic, subscription (None: gone), message model
Publish = Callable[[str, str, Subscription | None, str], None]


@dataclass(slots=True)
class Client:
    """One connection as a member of a group; account: its access key, "": none was asked for."""

    connection: int
    client_id: str
    language: int | None
    version: int
    remote: str
    heartbeat_ms: int
    account: str = ""


@dataclass(slots=True)
class ConsumerGroup:
    """
    The online part of a consumer group; every heartbeat overwrites its first three fields. The
    subscriptions are another object after each change.
    """

    name: str
    consume_type: str | None = None
    message_model: str = CLUSTERING
    from_where: str | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    members: dict[int, Client] = field(default_factory=dict)
    cost: int = 0                          # bytes of the subscriptions ...
    places: int = 0                        # ... how many they are ...
    payer: int = 0                         # ... and the member in whose share they are


@dataclass(slots=True)
class _Change:
    """What an entry makes of a group's subscriptions."""

    result: dict[str, Subscription]
    newer: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    known_count: int = 0                   # of those that there were before
    cost: int = 0


@dataclass(slots=True)
class _Memberships:
    client_id: str = ""                    # of a producer
    last: Client | None = None             # as its last heartbeat registered it everywhere ...
    said: object = None                    # ... what that said ...
    changes: object = None                 # ... and how many changes there were by then
    producers: dict[str, int] = field(default_factory=dict)    # group -> bytes
    consumers: dict[str, int] = field(default_factory=dict)


class ClientTables:
    """
    Both tables, and the groups of each connection. A connection has a share of the memory for what
    its heartbeats said, and of the places for subscriptions; those of a group are in the share of
    one of its members.
    """

    def __init__(
        self, publish: Publish, subscription_count_max: int,
        gone: Callable[[str], None] = lambda _: None,
    ) -> None:
        """gone: told of each consumer group whose last member has left."""
        self._publish = publish
        self._gone = gone
        self._places = Room(subscription_count_max)
        self._room = Room(max(CLIENTS_BYTES_MIN, BYTES_PER_SUBSCRIPTION * subscription_count_max))
        self._empty_bytes = 0              # of producer groups without members
        self.changes = 0                   # of who is here and what they subscribe
        self._connections: dict[int, _Memberships] = {}
        self._named_producers: dict[str, Client] = {}       # client id -> its newest connection
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

    def heard(self, connection: int, now_ms: int) -> None:
        """A client that has said all before is still there."""
        memberships = self._connections.get(connection)
        if memberships is not None and memberships.last is not None:
            memberships.last.heartbeat_ms = now_ms

    def remember(self, client: Client, said: object, changes: object) -> None:
        """All that a heartbeat says is registered now."""
        memberships = self._connections.get(client.connection)
        if memberships is not None:
            memberships.last, memberships.said, memberships.changes = client, said, changes

    def register_producer(self, group: str, client: Client) -> None:
        """
        A heartbeat named `group` as a producer group of this connection. Raises FieldError when
        there is no room for it.
        """
        memberships = self._memberships(client.connection)
        self._join(memberships.producers, group, client, memberships)
        members = self.producers.get(group)
        if members is None:
            members = self.producers[group] = {}
        elif not members:
            self._empty_bytes -= _empty_bytes(group)
        if client.connection not in members:
            self.changes += 1
        members[client.connection] = client
        if memberships.client_id != client.client_id:
            self._forget_producer(memberships, client.connection)
        memberships.client_id = client.client_id
        known = self._named_producers.get(client.client_id)
        if known is None or known.account in ("", client.account):     # else it is another's name
            self._named_producers[client.client_id] = client

    def register_consumer(
        self, entry: ConsumerEntry, client: Client
    ) -> Generator[None, None, bool]:
        """
        A heartbeat named a consumer group. True when its members have to be told: a new member, a
        topic more or less; a newer version of a known subscription is none (broker.md 7.2).

        With pauses; the group has all of the subscriptions from one moment on, and serving
        processes ask about what they are not shown yet. Raises FieldError when there is no room for
        the subscriptions, then nothing has changed, and TablesFull.
        """
        while True:
            group = self.consumers.get(entry.group)
            known = group.subscriptions if group is not None else {}
            change = yield from _compared(known, entry.subscriptions)
            if self.consumers.get(entry.group) is group and (
                    group is None or group.subscriptions is known):
                break                      # or others changed it meanwhile
        connection = client.connection
        pays = group is not None and group.payer == connection
        places = len(change.result) - (group.places if group is not None and pays else 0)
        more_places = len(change.result) > len(known)
        if more_places and not self._places.may_take(connection, places):
            raise FieldError(
                f"body: the broker has no room for the subscriptions of group {entry.group:.255}:"
                f" {places} more, expected less than this connection's share of the"
                f" {self._places.left} places that are free (processes.subscription_count_max)")
        memberships = self._memberships(connection)
        paid = group.cost if group is not None and pays else 0
        grows = group is None or change.cost > group.cost or more_places
        self._join(memberships.consumers, entry.group, client, memberships,
                   change.cost - paid if grows else 0)
        if group is None:
            group = self.consumers[entry.group] = ConsumerGroup(entry.group)
        self._charge(group, change.cost, len(change.result), connection if grows else group.payer)
        joined = connection not in group.members
        group.members[connection] = client
        if change.newer or change.gone:
            self.changes += 1
            group.subscriptions = change.result
        model_changed = group.message_model != entry.message_model
        if joined or (group.consume_type, group.message_model, group.from_where) != (
                entry.consume_type, entry.message_model, entry.from_where):
            self.changes += 1
        group.consume_type = entry.consume_type
        group.message_model = entry.message_model
        group.from_where = entry.from_where
        yield from self._show_all(group.name, change.gone)
        yield from self._show_new(
            group.name, list(change.result) if model_changed else change.newer, change.result,
            known)
        if change.newer or change.gone:
            replaced, known = list(known.values()), {}
            yield from _let_go(replaced)
        return joined or bool(change.gone) or change.known_count < len(change.result)

    def unregister(
        self, connection: int, producer_group: str | None, consumer_group: str | None
    ) -> Generator[None, None, list[str]]:
        """
        UNREGISTER_CLIENT of this connection; returns the consumer groups to tell. With pauses.
        """
        memberships = self._connections.get(connection)
        if memberships is None:
            return []
        if producer_group is not None and producer_group in memberships.producers:
            self._room.take(connection, -memberships.producers.pop(producer_group))
            self._leave_producers(producer_group, connection, keep_empty=False)
            if not memberships.producers:
                self._forget_producer(memberships, connection)
        left = {}
        if consumer_group is not None and consumer_group in memberships.consumers:
            self._room.take(connection, -memberships.consumers.pop(consumer_group))
            left[consumer_group] = self._leave_consumers(consumer_group, connection)
        if not memberships.producers and not memberships.consumers:
            del self._connections[connection]
        groups = list(left)
        while left:
            yield from self._hide(*left.popitem())
        return groups

    def connection_closed(self, connection: int) -> Generator[None, None, list[str]]:
        """Forget a connection; returns the consumer groups to tell. With pauses."""
        memberships = self._connections.pop(connection, None)
        if memberships is None:
            return []
        self._forget_producer(memberships, connection)
        for number, (group, cost) in enumerate(memberships.producers.items(), 1):
            self._room.take(connection, -cost)
            self._leave_producers(group, connection, keep_empty=True)
            if number % ROWS_A_TURN == 0:
                yield
        left = {}
        for number, (group, cost) in enumerate(memberships.consumers.items(), 1):
            self._room.take(connection, -cost)
            left[group] = self._leave_consumers(group, connection)
            if number % ROWS_A_TURN == 0:
                yield
        groups = sorted(left)
        while left:
            yield from self._hide(*left.popitem())
            yield
        return groups

    def connections(self) -> list[int]:
        """The connections that sent a heartbeat."""
        return list(self._connections)

    def knows(self, connection: int) -> bool:
        """Whether it is one of `connections`."""
        return connection in self._connections

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
        client = self._named_producers.get(client_id)
        return None if client is None else client.connection

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

    def subscription(self, group: str, topic: str) -> Subscription | None:
        found = self.consumers.get(group)
        return found.subscriptions.get(topic) if found is not None else None

    def _show(self, name: str, topic: str) -> None:
        """
        Publish what the group has now of what pulls can name; nobody can make a topic or group with
        a longer name.
        """
        if fits(topic, TOPIC_LENGTH_MAX) and fits(name, GROUP_LENGTH_MAX):
            group = self.consumers.get(name)
            if group is None:
                self._publish(name, topic, None, CLUSTERING)
            else:
                self._publish(name, topic, group.subscriptions.get(topic), group.message_model)

    def _show_all(self, name: str, topics: list[str]) -> Generator[None, None, None]:
        for number, topic in enumerate(topics, 1):
            self._show(name, topic)
            if number % ROWS_A_TURN == 0:
                yield

    def _hide(
        self, name: str, left: dict[str, Subscription]
    ) -> Generator[None, None, None]:
        """`_show_all` of what a group had whose members are gone."""
        names, subscriptions = list(left), list(left.values())
        del left
        yield from self._show_all(name, names)
        yield from _let_go(subscriptions)

    def _show_new(
        self, name: str, topics: list[str], wanted: dict[str, Subscription],
        known: dict[str, Subscription],
    ) -> Generator[None, None, None]:
        """`_show_all`; where the shared tables are full, what is not shown is as it was `known`."""
        for number, topic in enumerate(topics, 1):
            try:
                self._show(name, topic)
            except TablesFull:
                self._take_back(name, topics[number - 1:], wanted, known)
                raise
            if number % ROWS_A_TURN == 0:
                yield

    def _take_back(
        self, name: str, topics: list[str], wanted: dict[str, Subscription],
        known: dict[str, Subscription],
    ) -> None:
        group = self.consumers.get(name)
        if group is None:
            return
        result = dict(group.subscriptions)
        for topic in topics:
            if result.get(topic) is not wanted[topic]:
                continue                   # others have changed it meanwhile
            if topic in known:
                result[topic] = known[topic]
            else:
                del result[topic]
        group.subscriptions = result
        self._charge(group, sum(map(bytes_of, result.values())), len(result), group.payer)

    def _charge(self, group: ConsumerGroup, cost: int, places: int, payer: int) -> None:
        for room, before, now in (
                (self._room, group.cost, cost), (self._places, group.places, places)):
            room.take(group.payer, -before)
            room.take(payer, now)
        group.cost, group.places, group.payer = cost, places, payer

    def _memberships(self, connection: int) -> _Memberships:
        return self._connections.setdefault(connection, _Memberships())

    def _join(
        self, groups: dict[str, int], group: str, client: Client, memberships: _Memberships,
        more: int = 0,
    ) -> None:
        """A group of the connection, and `more` bytes that it brings. Raises FieldError."""
        count = len(memberships.producers) + len(memberships.consumers)
        if group not in groups and count >= GROUPS_OF_A_CONNECTION_MAX:
            raise FieldError(
                f"body: more than {GROUPS_OF_A_CONNECTION_MAX} groups on one connection")
        cost = MEMBER_BYTES + sys.getsizeof(group) + sys.getsizeof(client.client_id)
        growth = cost - groups.get(group, 0)
        if not self._room.may_take(client.connection, growth + more):
            raise FieldError(
                f"body: the broker has no room for group {group:.255}: {growth + more} bytes more,"
                " expected less than this connection's share of the memory for what clients say")
        self._room.take(client.connection, growth)
        groups[group] = cost

    def _leave_producers(self, group: str, connection: int, *, keep_empty: bool) -> None:
        """A closed connection leaves an empty group, UNREGISTER removes it (remoting.md 4.4)."""
        self.changes += 1
        members = self.producers.get(group)
        if members is None or members.pop(connection, None) is None or members:
            return
        cost = _empty_bytes(group)
        if keep_empty and self._empty_bytes + cost <= EMPTY_GROUPS_BYTES_MAX:
            self._empty_bytes += cost
        else:
            del self.producers[group]

    def _forget_producer(self, memberships: _Memberships, connection: int) -> None:
        if self.producer_connection(memberships.client_id) == connection:
            del self._named_producers[memberships.client_id]

    def _leave_consumers(self, name: str, connection: int) -> dict[str, Subscription]:
        """The subscriptions that none of its members has any more: they are to be hidden."""
        self.changes += 1
        group = self.consumers.get(name)
        if group is None:
            return {}
        group.members.pop(connection, None)
        if group.members:
            if group.payer == connection:
                self._charge(group, group.cost, group.places, next(iter(group.members)))
            return {}
        del self.consumers[name]
        self._charge(group, 0, 0, group.payer)
        self._gone(name)
        return group.subscriptions

    def _all_members(self) -> Iterator[Collection[Client]]:
        """Of each group that there is now and when its turn comes."""
        for producers in list(self.producers.values()):
            yield producers.values()
        for group in list(self.consumers.values()):
            yield group.members.values()


def _let_go(subscriptions: list[Subscription]) -> Generator[None, None, None]:
    """Free what was a group's, with pauses; others may still be reading its table."""
    while subscriptions:
        yield
        del subscriptions[-LET_GO_A_TURN:]


def _compared(
    known: dict[str, Subscription], wanted: dict[str, Subscription]
) -> Generator[None, None, _Change]:
    change = _Change({})
    for number, (topic, subscription) in enumerate(wanted.items(), 1):
        before = known.get(topic)
        if before is None or subscription.version_ms > before.version_ms:
            change.newer.append(topic)
            latest = subscription
        else:
            latest = before
        change.result[topic] = latest
        change.known_count += before is not None
        change.cost += bytes_of(latest)
        if number % ROWS_A_TURN == 0:
            yield
    for number, topic in enumerate(known, 1):
        if topic not in wanted:
            change.gone.append(topic)
        if number % ROWS_A_TURN == 0:
            yield
    return change


def _empty_bytes(group: str) -> int:
    return EMPTY_GROUP_BYTES + sys.getsizeof(group)
