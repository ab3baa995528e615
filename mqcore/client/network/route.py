"""Finding brokers: the routes that a client knows (client.md 1.6, 1.7)."""
from __future__ import annotations

import random
from collections.abc import Callable

from mqcore.client.errors import (
    CODE_BROKER_NOT_FOUND,
    CODE_NO_ROUTE,
    ClientError,
    NoRouteError,
)
from mqcore.client.message import MessageQueue
from mqcore.client.network.name_servers import NameServers
from mqcore.wire.codes import MASTER_ID, PERM_READ, PERM_WRITE, QUEUE_COUNT_MAX, TEMPLATE_TOPIC
from mqcore.wire.numbers import whole_number
from mqcore.wire.topics import TopicRoute

TEMPLATE_QUEUE_COUNT = 4        # defaultTopicQueueNums of clients
TOPIC_COUNT_MAX = 10_000


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues to send to: writable, and their broker has a master (client.md 1.6).

    An order configuration names the queues itself. Raises ClientError for one that is not
    `broker:count;...` or a route that claims too many queues.
    """
    if route.order_conf:
        return _ordered_queues(topic, route.order_conf)
    masters = {b.broker_name for b in route.brokers if MASTER_ID in b.addresses}
    counts = [
        (queue.broker_name, queue.write_queue_count) for queue in route.queues
        if queue.perm & PERM_WRITE and queue.broker_name in masters
    ]
    return _numbered(topic, sorted(counts))


def subscribe_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues to read from, slaves' included; raises ClientError for too many."""
    counts = [(q.broker_name, q.read_queue_count) for q in route.queues if q.perm & PERM_READ]
    return _numbered(topic, sorted(counts))


def _ordered_queues(topic: str, order_conf: str) -> list[MessageQueue]:
    counts = []
    for item in filter(None, order_conf.split(";")):
        broker, _, text = item.rpartition(":")
        count = whole_number(text, 0, QUEUE_COUNT_MAX)
        if not broker or count is None:
            raise ClientError(f"orderTopicConf {order_conf[:80]!r}: expected broker:count",
                              topic=topic)
        counts.append((broker, count))
    return _numbered(topic, counts)


def _numbered(topic: str, counts: list[tuple[str, int]]) -> list[MessageQueue]:
    if sum(max(0, count) for _, count in counts) > QUEUE_COUNT_MAX:
        raise ClientError(f"route of {topic}: more than {QUEUE_COUNT_MAX} queues", topic=topic)
    return [MessageQueue(topic, broker, number) for broker, n in counts for number in range(n)]


class Routes:
    """The routes that a client asked for, kept until they are refreshed."""

    def __init__(self, name_servers: NameServers, *, template_topic: str = TEMPLATE_TOPIC) -> None:
        self._name_servers = name_servers
        self._template_topic = template_topic
        self._routes: dict[str, TopicRoute] = {}
        self._from_template: set[str] = set()
        self._publish: dict[str, list[MessageQueue]] = {}      # of the routes that are known
        self.masters: dict[str, str] = {}         # broker name -> address; replaced, not changed
        self._template_queue_count = TEMPLATE_QUEUE_COUNT
        self._listeners: list[Callable[[str], None]] = []

    def set_template(self, topic: str, queue_count: int) -> None:
        """The topic whose brokers make new topics, and with how many queues each."""
        self._template_topic = topic
        self._template_queue_count = queue_count

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have a function called with each topic whose route is another than before."""
        self._listeners.append(listener)

    @property
    def topics(self) -> list[str]:
        return list(self._routes)

    def knows(self, topic: str) -> bool:
        """Whether it has a route, perhaps one without a broker that takes messages."""
        return topic in self._routes

    async def refresh(self, topic: str, *, timeout: float = 3.0) -> bool:
        """Ask for a topic again; an unknown one keeps what was known. Returns whether it changed.

        Raises like NameServers.route.
        """
        route = await self._name_servers.route(topic, timeout=timeout)
        if route is None:
            return False
        was_guess = topic in self._from_template
        self._from_template.discard(topic)
        changed = self._keep(topic, route)
        if changed or was_guess:
            for listener in self._listeners:
                listener(topic)
        return changed

    def _keep(self, topic: str, route: TopicRoute) -> bool:
        if topic not in self._routes and len(self._routes) >= TOPIC_COUNT_MAX:
            raise ClientError(f"more than {TOPIC_COUNT_MAX} topics in one client")
        changed = self._routes.get(topic) != route
        if changed:
            queues = publish_queues(topic, route)
            self._routes[topic] = route
            self._publish[topic] = queues
            self.masters = {
                name: by_id[MASTER_ID] for name, by_id in self.addresses().items()
                if MASTER_ID in by_id
            }
        return changed

    def known_queues(self, topic: str) -> list[MessageQueue]:
        """The known queues for sending to `topic`; the caller keeps the list."""
        return self._publish.get(topic, [])

    async def queues_to_publish(
        self, topic: str, *, timeout: float = 3.0
    ) -> list[MessageQueue]:
        """Queues for sending to `topic`; an unknown topic gets its template's brokers, which
        create it on the first send (client.md 2.3).

        Raises NoRouteError 10005 when there is no queue, or like NameServers.route.
        """
        if topic not in self._routes:
            await self.refresh(topic, timeout=timeout)
        if topic not in self._routes:
            template = await self._name_servers.route(self._template_topic, timeout=timeout)
            if template is not None:
                self._keep(topic, _limited(template, self._template_queue_count))
                self._from_template.add(topic)
        queues = self.known_queues(topic)
        if not queues:
            error = NoRouteError(f"no route to write to topic {topic}",
                                 self._why_no_queue(topic), topic=topic)
            error.is_no_such_topic = (topic not in self._routes
                                      and await self._name_servers.has_brokers(timeout=timeout))
            raise error
        return queues

    def _why_no_queue(self, topic: str) -> int:
        """The code of a topic without a queue to send to; without a master for now: 10003."""
        route = self._routes.get(topic)
        may_come = route is not None and any(
            queue.perm & PERM_WRITE and queue.write_queue_count for queue in route.queues)
        return CODE_BROKER_NOT_FOUND if may_come else CODE_NO_ROUTE

    def is_guess(self, topic: str) -> bool:
        """Whether the route of `topic` is its template's, because it did not exist yet."""
        return topic in self._from_template

    def queues_to_read(self, topic: str) -> list[MessageQueue]:
        """Queues for reading a topic; none while its route is unknown."""
        route = self._routes.get(topic)
        return [] if route is None or topic in self._from_template else subscribe_queues(
            topic, route
        )

    async def readable(self, topic: str, *, timeout: float = 3.0) -> list[MessageQueue] | None:
        """The queues to read of a topic as name servers know it now; None: it is not there.

        Raises like NameServers.route.
        """
        route = await self._name_servers.route(topic, timeout=timeout)
        if route is None:
            return None
        self._keep(topic, route)
        return subscribe_queues(topic, route)

    def addresses(self) -> dict[str, dict[int, str]]:
        """All known broker names with their addresses by broker id."""
        found: dict[str, dict[int, str]] = {}
        for route in self._routes.values():
            for broker in route.brokers:
                found[broker.broker_name] = broker.addresses
        return found

    def master(self, broker_name: str) -> str:
        """The master's address of a broker name; raises ClientError 10003."""
        address = self.masters.get(broker_name)
        if address is None:
            raise NoRouteError(f"broker {broker_name} has no master", CODE_BROKER_NOT_FOUND)
        return address

    def reader(self, broker_name: str, broker_id: int) -> str:
        """Where to pull: the id asked for, else the next, else any; raises like `master`."""
        known = self.addresses().get(broker_name, {})
        for wanted in (broker_id, broker_id + 1 if broker_id else broker_id):
            if wanted in known:
                return known[wanted]
        if not known:
            raise NoRouteError(f"broker {broker_name} is unknown", CODE_BROKER_NOT_FOUND)
        return next(iter(known.values()))

    def some_broker(self, topic: str) -> str:
        """Any broker of a topic, its master if there is one; raises ClientError 10003."""
        route = self._routes.get(topic)
        brokers = [broker for broker in route.brokers if broker.addresses] if route else []
        if not brokers:
            raise NoRouteError(f"no broker of topic {topic} is known", CODE_BROKER_NOT_FOUND)
        addresses = random.choice(brokers).addresses
        return addresses.get(MASTER_ID) or next(iter(addresses.values()))


def _limited(template: TopicRoute, queue_count: int) -> TopicRoute:
    """The route of a topic to be created: at most so many queues on each broker of its template."""
    queues = tuple(
        type(queue)(
            queue.broker_name, min(queue_count, queue.read_queue_count),
            min(queue_count, queue.read_queue_count), queue.perm, queue.sys_flag,
        )
        for queue in template.queues
    )
    return TopicRoute(queues, template.brokers)
