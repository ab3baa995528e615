"""The route tables of a name server: who has which topic, and who is alive.

Plain data and rules, no clock and no sockets: `now_ms` and the number of the connection are
arguments (broker.md 13; RocketMQ 4.9.8: RouteInfoManager). One thread uses it.
"""
from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from mqcore.namesrv.elders import Elders
from mqcore.wire.codes import MASTER_ID, PERM_READ, PERM_WRITE
from mqcore.wire.topics import (
    SYS_FLAG_UNIT,
    SYS_FLAG_UNIT_SUB,
    BrokerData,
    DataVersion,
    QueueData,
    TopicRoute,
    TopicTable,
)

NAME_LENGTH_MAX = 1_024                 # of a cluster, a broker or an address
TOPIC_NAME_BYTES_MAX = 255                  # no broker stores a longer one
TOPIC_BYTES_MAX = 14 << 20              # of all topics, for an answer with their names ...
TOPIC_BYTES_EACH = 64                   # ... or so many of each that there may be
CLUSTERS_OF_A_NAME_MAX = 4
MEMBERS_BYTES_MAX = 8 << 20             # of all clusters, names and addresses, for an answer
MEMBER_BYTES = 64                       # of one in such an answer, beside its texts
TOPICS_A_TURN = 500                # or brokers of one, that are looked at between two pauses


class TableFull(ValueError):
    """
    A registration would exceed a limit. With too many brokers it was not applied; of topics only
    those without a place were left out.
    """


@dataclass(slots=True, frozen=True)
class BrokerIdentity:
    """Who a broker says it is, in 103, 104 and 322."""

    cluster: str
    name: str
    address: str
    broker_id: int


@dataclass(slots=True)
class LiveBroker:
    """What is known of one registered address."""

    seen_ms: int
    version: DataVersion | None    # None: its topics are not all here yet
    connection: int
    ha_address: str


@dataclass(slots=True, frozen=True)
class MasterAddresses:
    """What a slave learns about its master when it registers; None when there is none alive."""

    address: str | None = None
    ha_address: str | None = None


class RouteTables:
    """All that brokers registered.

    A master's topics are upserted and never removed by a registration: only 216 and the end of the
    broker name remove them (broker.md 13.3, 13.5). A name that ends is gone at once. What it leaves
    in `_topics` is taken out with pauses and means nothing: `_topics_on` says what a name has.

    Broker names that are here longest have a share of each table that later ones cannot take
    (elders.py).
    """

    def __init__(
        self, *, topic_count_max: int = 100_000, broker_count_max: int = 10_000,
        route_count_max: int = 1_000_000,
    ) -> None:
        """route_count_max: of topics of single brokers, all brokers together."""
        self.topic_count_max = topic_count_max
        self._broker_count_max = broker_count_max
        self._route_count_max = route_count_max
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._names: dict[str, set[str]] = {}          # address -> broker names that have it
        self._topics_on: dict[str, set[str]] = {}      # broker name -> topics
        self._clusters_of: dict[str, set[str]] = {}    # broker name -> clusters
        self._live: dict[str, LiveBroker] = {}
        self._connections: set[int] = set()            # that somebody registered over
        self.names_version = 0                         # another one when topics came or went
        self._topic_bytes = 0                          # of the names in _topics
        self._topic_bytes_max = max(TOPIC_BYTES_MAX, TOPIC_BYTES_EACH * topic_count_max)
        self._member_sizes: dict[str, int] = {}        # by broker name
        self._member_bytes = 0                         # their sum
        self._elders = Elders()

    # -- what brokers do --------------------------------------------------------------------------

    def register(
        self, who: BrokerIdentity, ha_address: str, table: TopicTable, connection: int, now_ms: int,
    ) -> Generator[None, None, MasterAddresses]:
        """Apply REGISTER_BROKER; `connection` is the one whose end takes the broker away.

        With pauses: the version counts only when all topics are there, and a broker that goes in
        between takes along what there is. Raises TableFull: a broker that is known is alive
        nevertheless, with all topics that have a place.
        """
        self._check_broker(who)
        self._elders.came(who.name)
        self._clusters.setdefault(who.cluster, set()).add(who.name)
        self._clusters_of.setdefault(who.name, set()).add(who.cluster)
        broker = self._brokers.get(who.name)
        if broker is None:
            broker = self._brokers[who.name] = BrokerData(who.cluster, who.name, {})
        for broker_id, address in list(broker.addresses.items()):
            if address == who.address and broker_id != who.broker_id:
                del broker.addresses[broker_id]         # the same broker in another role
        first_time = who.broker_id not in broker.addresses
        broker.addresses[who.broker_id] = who.address
        self._names.setdefault(who.address, set()).add(who.name)
        self._measure(who.name)
        known = self._live.get(who.address)
        changed = known is None or known.version != table.version
        before = known.version if known is not None else None
        live = self._live[who.address] = LiveBroker(now_ms, before, connection, ha_address)
        self._connections.add(connection)
        if who.broker_id == MASTER_ID and (first_time or changed):
            yield from self._upsert_topics(who, table, live)
        live.version = table.version
        if self._live.get(who.address) is live:
            self._released(self._elders.is_whole(who.name))
        if who.broker_id == MASTER_ID:
            return MasterAddresses()
        master = broker.addresses.get(MASTER_ID)
        master_live = self._live.get(master) if master is not None else None
        if master_live is None:
            return MasterAddresses()
        return MasterAddresses(master, master_live.ha_address)

    def _check_broker(self, who: BrokerIdentity) -> None:
        """Whether there is a place for a name, an address and a cluster. Raises TableFull."""
        for what, name in (("clusterName", who.cluster), ("brokerName", who.name),
                           ("brokerAddr", who.address)):
            if len(name) > NAME_LENGTH_MAX:
                raise TableFull(f"{what} has {len(name)} characters: expected at most "
                                f"{NAME_LENGTH_MAX}")
        known = self._brokers.get(who.name)
        clusters = self._clusters_of.get(who.name, set())
        has_place = (known is not None and who.address in self._live
                     and who.broker_id in known.addresses)
        if has_place and who.cluster in clusters:
            return
        if who.cluster not in clusters and len(clusters) >= CLUSTERS_OF_A_NAME_MAX:
            raise TableFull(f"brokerName {who.name} is in {len(clusters)} clusters: expected no "
                            f"more")
        count = sum(len(broker.addresses) for broker in self._brokers.values())
        if not has_place and max(count, len(self._live)) >= self._elders.room(
                who.name, self._broker_count_max):
            raise TableFull(f"more than {self._broker_count_max} brokers "
                            "(setting namesrv.broker_count_max)")
        if self._member_bytes + _size(who.cluster, who.name, who.address) > self._elders.room(
                who.name, MEMBERS_BYTES_MAX):
            raise TableFull(f"names of clusters and brokers, and addresses, have more than "
                            f"{MEMBERS_BYTES_MAX} bytes")

    def _measure(self, name: str) -> None:
        """After a change of a name, its clusters or addresses: its part of an answer with all."""
        broker = self._brokers.get(name)
        size = 0 if broker is None else _size(
            name, *self._clusters_of.get(name, ()), *broker.addresses.values())
        self._member_bytes += size - self._member_sizes.pop(name, 0)
        if broker is not None:
            self._member_sizes[name] = size

    def _upsert_topics(
        self, who: BrokerIdentity, table: TopicTable, live: LiveBroker
    ) -> Generator[None, None, None]:
        """Raises TableFull for topics without a place, when the others are in the tables."""
        names = self._topics_on.setdefault(who.name, set())
        routes = sum(map(len, self._topics_on.values())) - len(names)       # of other names
        places = self._elders.room(who.name, self.topic_count_max)
        size = self._elders.room(who.name, self._topic_bytes_max)
        route_places = self._elders.room(who.name, self._route_count_max, routes=True)
        left_out, reason = table.left_out, ""
        if left_out:
            reason = f"more than {self.topic_count_max} topics (setting namesrv.topic_count_max)"
        for number, (name, topic) in enumerate(table.topics.items(), 1):
            if number % TOPICS_A_TURN == 0:
                yield
                if (self._live.get(who.address) is not live
                        or self._topics_on.get(who.name) is not names):
                    return             # it or its name has gone, or it registers anew
            trouble = ""
            if name not in self._topics and not self._elders.has(name):
                length, taken = _length(name), len(self._topics) + self._elders.kept
                if length > TOPIC_NAME_BYTES_MAX:
                    trouble = f"a topic has {length} bytes: expected at most {TOPIC_NAME_BYTES_MAX}"
                elif taken >= places or self._topic_bytes + length > size:
                    trouble = (f"more than {self.topic_count_max} topics "
                               "(setting namesrv.topic_count_max)")
            if not trouble and name not in names and routes + len(names) >= route_places:
                trouble = (f"more than {self._route_count_max} topics of single brokers "
                           "(setting namesrv.route_count_max)")
            if trouble:
                left_out, reason = left_out + 1, trouble
                continue
            names.add(name)
            if name not in self._topics:
                self._topics[name] = {}
                if self._elders.has(name):
                    self._elders.is_back(name)
                else:
                    self._topic_bytes += _length(name)
                self.names_version += 1
            self._topics[name][who.name] = QueueData(
                who.name, topic.read_queue_count, topic.write_queue_count, topic.perm,
                topic.sys_flag,
            )
        if left_out:
            raise TableFull(f"{left_out} of {len(table.topics) + table.left_out} topics of "
                            f"{who.name} are left out: {reason}")

    def query_version(
        self, address: str, version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """QUERY_DATA_VERSION (322): whether to register, and the version stored here if any."""
        live = self._live.get(address)
        if live is None:
            return True, None
        if live.version == version:
            live.seen_ms = now_ms
            return False, live.version
        return True, live.version

    def unregister(self, who: BrokerIdentity) -> Generator[None, None, None]:
        """
        UNREGISTER_BROKER (104); a broker that is not known is no error. Its id stays with another
        address that has it by now (stock takes it away): a slave that was promoted. With pauses.
        """
        self._live.pop(who.address, None)
        broker = self._brokers.get(who.name)
        if broker is not None:
            if broker.addresses.get(who.broker_id) == who.address:
                del broker.addresses[who.broker_id]
            names = self._names.get(who.address, set())
            if who.address not in broker.addresses.values():
                names.discard(who.name)
            if not names:
                self._names.pop(who.address, None)
            yield from self._drop_if_empty(broker)

    # -- who is alive -----------------------------------------------------------------------------

    def has_registered(self, connection: int) -> bool:
        """Whether its end may take somebody away."""
        return connection in self._connections

    def connection_closed(self, connection: int) -> Generator[None, None, list[str]]:
        """
        Drop the brokers that registered over this connection; returns their addresses. With pauses.
        """
        if not self.has_registered(connection):
            return []
        self._connections.remove(connection)
        gone = []
        for address in [one for one, live in self._live.items() if live.connection == connection]:
            live = self._live.get(address)
            if live is not None and live.connection == connection:       # it is not back already
                gone.append(address)
                yield from self._remove_address(address)
        return gone

    def expire(
        self, now_ms: int, silence_max_ms: int
    ) -> Generator[None, None, list[tuple[str, int]]]:
        """
        Drop brokers that were silent for longer; returns (address, connection) to close. With
        pauses.
        """
        self._released(self._elders.look(now_ms))
        gone = []
        for address in [one for one, live in self._live.items()
                        if live.seen_ms + silence_max_ms < now_ms]:
            live = self._live.get(address)
            if live is not None and live.seen_ms + silence_max_ms < now_ms:
                gone.append((address, live.connection))
                yield from self._remove_address(address)
        return gone

    def _remove_address(self, address: str) -> Generator[None, None, None]:
        self._live.pop(address, None)
        for name in self._names.pop(address, ()):
            broker = self._brokers.get(name)
            if broker is None:
                continue
            for broker_id, held in list(broker.addresses.items()):
                if held == address:
                    del broker.addresses[broker_id]
            yield from self._drop_if_empty(broker)
        yield

    def _drop_if_empty(self, broker: BrokerData) -> Generator[None, None, None]:
        """A name without addresses leaves its cluster and all topics; empty ones vanish."""
        if broker.addresses:
            self._measure(broker.broker_name)
            return
        name = broker.broker_name
        self._brokers.pop(name, None)
        for cluster in self._clusters_of.pop(name, ()):
            names = self._clusters.get(cluster, set())
            names.discard(name)
            if not names:
                self._clusters.pop(cluster, None)
        self._measure(name)
        topics = self._topics_on.pop(name, set())
        self._elders.left(name, len(topics))
        while topics:
            topic = topics.pop()
            if len(topics) % TOPICS_A_TURN == 0:
                yield
            queues = self._topics.get(topic)
            if queues is None or topic in self._topics_on.get(name, ()):       # it is back already
                continue
            queues.pop(name, None)
            if not queues:
                self._forget_topic(topic, kept=self._elders.reserve(name, topic))

    def _forget_topic(self, topic: str, *, kept: bool = False) -> None:
        del self._topics[topic]
        self.names_version += 1
        if not kept:
            self._released([topic])

    def _released(self, topics: list[str]) -> None:
        """Their places are free."""
        self._topic_bytes -= sum(map(_length, topics))

    # -- what clients and tools ask; generators have pauses ---------------------------------------

    def route(self, topic: str) -> Generator[None, None, TopicRoute | None]:
        """Queues and brokers of a topic; None when it or all of its brokers are unknown."""
        queues, brokers = [], []
        for number, (name, queue) in enumerate(list(self._topics.get(topic, {}).items()), 1):
            if number % TOPICS_A_TURN == 0:
                yield
            broker = self._brokers.get(name)
            if broker is not None and topic in self._topics_on.get(name, ()):
                queues.append(queue)
                brokers.append(broker)
        return TopicRoute(tuple(queues), tuple(brokers)) if brokers else None

    def cluster_info(self) -> dict[str, Any]:
        """The members of ClusterInfo (106); its brokers are live."""
        return {
            "brokerAddrTable": self._brokers,
            "clusterAddrTable": {name: sorted(names) for name, names in self._clusters.items()},
        }

    def brokers_of(self, topic: str) -> str | None:
        """The names of a topic's brokers, in one text; None: there is no such topic."""
        queues = self._topics.get(topic)
        return None if queues is None else " ".join(sorted(queues))

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    @property
    def broker_count(self) -> int:
        return len(self._brokers)

    def topic_names(self) -> list[str]:
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> Generator[None, None, list[str]]:
        """Topics that a broker of the cluster has; none when the cluster is unknown (224)."""
        names = self._clusters.get(cluster, set())
        found, looked_at = [], 0
        for topic in list(self._topics):
            queues = self._topics.get(topic, {})
            if not names.isdisjoint(queues):
                found.append(topic)
            looked_at += 1 + len(queues)
            if looked_at >= TOPICS_A_TURN:
                looked_at = 0
                yield
        return found

    def system_names(self) -> tuple[list[str], str | None]:
        """Cluster and broker names, and the address of some broker (304)."""
        address = next(
            (addr for broker in self._brokers.values() for addr in broker.addresses.values()), None
        )
        return [*self._clusters, *self._brokers], address

    def unit_topics(
        self, *, unit: bool | None, subscribed: bool | None
    ) -> Generator[None, None, list[str]]:
        """Topics by the unit bits of their first queue entry; None: the bit does not matter."""
        found = []
        for number, topic in enumerate(list(self._topics), 1):
            if number % TOPICS_A_TURN == 0:
                yield
            first = next(iter(self._topics.get(topic, {}).values()), None)
            flags = first.sys_flag if first is not None else 0
            has_unit, has_sub = bool(flags & SYS_FLAG_UNIT), bool(flags & SYS_FLAG_UNIT_SUB)
            if unit in (None, has_unit) and subscribed in (None, has_sub):
                found.append(topic)
        return found

    # -- what administrators change ---------------------------------------------------------------

    def set_writable(self, broker_name: str, *, writable: bool) -> Generator[None, None, int]:
        """ADD (327) or WIPE (205) the write permission on one broker; returns how many topics.

        Holds until the broker registers with a changed version. With pauses.
        """
        count = 0
        for number, topic in enumerate(list(self._topics_on.get(broker_name, ())), 1):
            if number % TOPICS_A_TURN == 0:
                yield
            queues = self._topics.get(topic, {})
            queue = queues.get(broker_name)
            if queue is None:
                continue
            perm = PERM_READ | PERM_WRITE if writable else queue.perm & ~PERM_WRITE
            queues[broker_name] = replace(queue, perm=perm)
            count += 1
        return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> Generator[None, None, None]:
        """DELETE_TOPIC_IN_NAMESRV (216): in one cluster, or everywhere. With pauses."""
        queues = self._topics.get(topic)
        if queues is None:
            return
        gone = queues.keys() & self._clusters.get(cluster, set()) if cluster else set(queues)
        for number, name in enumerate(gone, 1):
            if number % TOPICS_A_TURN == 0:
                yield
            if queues.pop(name, None) is not None:
                self._topics_on.get(name, set()).discard(topic)
        if not queues and self._topics.get(topic) is queues:
            self._forget_topic(topic)


def _length(name: str) -> int:
    return len(name) if name.isascii() else len(name.encode("utf-8", "replace"))


def _size(*names: str) -> int:
    """Of names in an answer: each may stand there twice."""
    return sum(2 * _length(name) + MEMBER_BYTES for name in names)
