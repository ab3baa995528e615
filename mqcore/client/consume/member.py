"""
One member of a consumer group: which queues it holds, what it pulls, what it commits.

Roles decide what happens to the messages (`Sink`). Everything runs in one event loop.

M1  A queue is held once; one whose last listener call still runs after it was given up is not taken
    again before the call has ended, and its lock is kept so long.
M2  Only held queues that are not dropped are committed.
M3  The start offset of a new queue is committed, even if it is 0. From then on the group has a
    position in it, and messages that are stored while the group is away are delivered.
"""
from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from mqcore.client.consume import pulling
from mqcore.client.consume.assigned import AssignedQueue
from mqcore.client.consume.locks import BROKER_LOCK_LIFE_S, LOCK_LIFE_S, RENEW_S, QueueLocks
from mqcore.client.consume.puller import Puller, Sink
from mqcore.client.consume.rules import Rules
from mqcore.client.consume.sharing import Sharing
from mqcore.client.consume.stores import OffsetStore
from mqcore.client.core.consume_stats import TopicCounts
from mqcore.client.core.offsets import Ask, start
from mqcore.client.core.rebalance import Limits, changes
from mqcore.client.errors import BrokerError, ConfigError, RocketMQError
from mqcore.client.events import Rebalanced
from mqcore.client.message import MessageQueue
from mqcore.client.roles.instance import ClientInstance, steadily
from mqcore.wire.codes import ResponseCode
from mqcore.wire.tags import SUBSCRIBE_ALL, Subscription, parse_subscription

REBALANCE_S = 20.0
UNKNOWN_S = 2.0                 # while a topic has no route, or a queue waits to be taken
FIRST_RENEWAL_S = 1.0
LISTENER_END_S = 1.0                  # a listener's call may end before its queue is given back
LISTENER_LOOK_S = 0.01
RESET_WAIT_S = 10.0
SAMPLE_S = 10.0

log: Final = logging.getLogger("mqcore.client")


class GroupMember:
    """Holds queues, pulls them, commits offsets."""

    _here: ClassVar[WeakValueDictionary[tuple[str, str], GroupMember]] = WeakValueDictionary()

    def __init__(self, instance: ClientInstance, rules: Rules, store: OffsetStore,
                 sink: Sink) -> None:
        self.rules = rules
        self.subscriptions: dict[str, Subscription] = {}
        self.filters: dict[str, Subscription] = {}          # of assigned topics
        self.held: dict[MessageQueue, AssignedQueue] = {}
        self.stats: dict[str, TopicCounts] = {}
        self.limits: Limits = rules.limits
        self.started_ms: int = 0
        self._instance = instance
        self._store = store
        self._sink = sink
        self._locks = QueueLocks(instance, rules.group)
        self._sharing = Sharing(instance, rules.group)
        self._puller = Puller(instance, rules, self, sink)
        self._leaving: dict[MessageQueue, AssignedQueue] = {}
        self._fixed: set[MessageQueue] | None = None        # assigned by hand
        self._tasks: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self.going: asyncio.Event = asyncio.Event()    # not suspended
        self.going.set()
        self.has_room: asyncio.Event = asyncio.Event()         # the role takes more messages
        self.has_room.set()
        self._announce = True
        self._all_taken = True
        self._learning = ""             # the topic whose route is asked for here
        self._unknown: set[str] = set()         # topics of which that was said
        self._told: set[MessageQueue] = set()           # the application knows of
        instance.routes.on_change(self._on_route)

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and begin to pull. Raises ClientError for stored offsets that cannot be
        read, BrokerError for a filter that a broker refuses; what cannot be asked yet is tried
        again."""
        if self.rules.has_retry_topic and not self.rules.broadcast:
            topic = self.rules.retry_topic
            self.subscriptions[topic] = parse_subscription(topic, SUBSCRIBE_ALL, _now_ms())
        self.started_ms = _now_ms()
        await self._store.load()
        for topic in self._topics():
            await self._learn_route(topic)
        for subscription in list(self.subscriptions.values()):
            await self._sharing.check_filter(subscription)
        own = {topic: one for topic, one in self.subscriptions.items()
               if topic != self.rules.retry_topic}
        await self._sharing.warn_of_others(own)
        self._warn_of_twins()
        await self._rebalance()
        self._tasks = [self._instance.spawn(self._rebalance_loop()),
                       self._instance.spawn(self._persist_loop()),
                       self._instance.spawn(self._sample_loop())]
        if self.rules.locks:
            self._tasks.append(self._instance.spawn(self._renew_loop()))

    def _warn_of_twins(self) -> None:
        """Two members with one id compute one and the same share (client.md 1.2)."""
        name = (self._instance.client_id, self.rules.group)
        if name in self._here:
            log.warning("client id %s is used twice in group %s: give each its instance_name",
                        *name)
        self._here[name] = self

    def stop_pulling(self) -> None:
        """No more pulls and no more changes; queues stay held, and locked."""
        for task in self._tasks:
            task.cancel()
        for held in self.held.values():
            if held.pulls is not None:
                held.pulls.cancel()

    async def leave(self) -> None:
        """Commit, give locks back, tell the brokers."""
        await self._commit(self._kept(), wait=True)
        for held in self.held.values():
            held.drop()
        self.held.clear()
        self._tell()
        if self.rules.locks:
            await self._locks.unlock_all()
        await self._instance.unregister(consumer=self.rules.group)
        self._here.pop((self._instance.client_id, self.rules.group), None)

    def heartbeat(self) -> dict[str, Any]:
        """The group's part of a heartbeat."""
        return {"producerDataSet": [], "consumerDataSet": [{
            "consumeFromWhere": self.rules.consume_from.value,
            "consumeType": self.rules.consume_type, "groupName": self.rules.group,
            "messageModel": "BROADCASTING" if self.rules.broadcast else "CLUSTERING",
            "unitMode": self._instance.config.unit_mode,
            "subscriptionDataSet": [one.as_json() for one in self.subscriptions.values()],
        }]}

    # -- what it is told --------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Want this of a topic from now on."""
        self.subscriptions[subscription.topic] = subscription
        self._announce = True
        self._wake.set()

    def unsubscribe(self, topic: str) -> None:
        """Give up a topic; its offsets are committed."""
        self.subscriptions.pop(topic, None)
        self._announce = True
        self._wake.set()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Hold exactly these, whatever other members hold."""
        self._fixed = set(queues)
        self._wake.set()

    async def seek(self, queue: MessageQueue, offset: int) -> bool:
        """Pull from this offset on, commits stay where they are; whether the queue is held."""
        async with self._turn:
            held = self.held.get(queue)
            if held is None:
                return False
            held.drop()
            self._hold(held.moved(offset, time.monotonic()))
            return True

    async def commit_now(self, queues: Iterable[MessageQueue]) -> None:
        """Commit these and wait until the broker has it; raises RocketMQError."""
        chosen = [self.held[queue] for queue in queues if queue in self.held]
        offsets = {held.queue: offset for held in chosen
                   if (offset := held.commit_offset) is not None}
        await self._store.write(offsets, wait=True)
        for held in chosen:
            held.committed = offsets.get(held.queue)

    async def stored_offset(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None: there is none. Raises RocketMQError."""
        return await self._store.read(queue)

    def wake(self) -> None:
        """Look at the shares now."""
        self._wake.set()

    @property
    def is_suspended(self) -> bool:
        return not self.going.is_set()

    def suspend(self) -> None:
        """No pulls and no changes of queues until `resume`; what was pulled is consumed."""
        self.going.clear()

    def resume(self) -> None:
        self.going.set()
        self._wake.set()

    async def restart_at(self, offsets: Mapping[MessageQueue, int], *,
                         wait: float = RESET_WAIT_S) -> None:
        """Continue at these offsets in queues that are held; they may be lower (client.md 4.15).

        wait   seconds that running listener calls of the queues have to end
        Raises RocketMQError when the offsets cannot be stored.
        """
        async with self._turn:
            touched = [self.held[queue] for queue in offsets if queue in self.held]
            for held in touched:
                held.drop()
            deadline = time.monotonic() + wait
            for held in touched:
                await self._wait_for_listener(held, deadline - time.monotonic())
            try:
                await self._store.write({held.queue: offsets[held.queue] for held in touched},
                                        wait=True)
            finally:
                for held in touched:
                    await self._let_go(held)
                self._wake.set()

    # -- which queues -----------------------------------------------------------------------------

    async def _rebalance_loop(self) -> None:
        while True:
            known = self._all_taken and all(
                self._instance.routes.queues_to_read(topic) for topic in self.subscriptions)
            try:
                async with asyncio.timeout(REBALANCE_S if known else UNKNOWN_S):
                    await self._wake.wait()
            except TimeoutError:
                log.debug("rebalancing group %s by the timer", self.rules.group)
            self._wake.clear()
            await self.going.wait()
            await steadily(self._rebalance)

    async def _rebalance(self) -> None:
        """Take and give up queues so that the shares of all members fit together."""
        async with self._turn:
            for topic in self._topics():
                if not self._instance.routes.queues_to_read(topic):
                    await self._learn_route(topic)
            if self._announce:
                self._announce = False
                await self._instance.send_heartbeats()
            self._all_taken = True
            changed = False
            for topic in self._topics():
                share = await self._share(topic)
                if share is not None:
                    changed |= await self._update(topic, share)
            if changed:
                self.limits = self.rules.limits.shared(len(self.held))
            self._tell()
            if changed:
                await self._instance.send_heartbeats()

    def _on_route(self, topic: str) -> None:
        """Shares of a topic that has other queues are others, too."""
        if topic in self.subscriptions and topic != self._learning:
            self._wake.set()

    def _tell(self) -> None:
        """Say which queues came and went since it was said last."""
        now = set(self.held)
        taken, given_up = now - self._told, self._told - now
        self._told = now
        if self._instance.is_watched and (taken or given_up):
            self._instance.tell(Rebalanced(
                client_id=self._instance.client_id,
                group=self._instance.unwrap(self.rules.group), taken=self._shown(taken),
                given_up=self._shown(given_up), held=self._shown(now)))

    def _shown(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        return tuple(sorted(map(self._instance.shown, queues)))

    def _topics(self) -> list[str]:
        """Subscribed ones, and those of which queues are still held."""
        return sorted({*self.subscriptions, *(queue.topic for queue in self.held),
                       *(queue.topic for queue in self._fixed or ())})

    async def _learn_route(self, topic: str) -> None:
        """Where a topic is; its brokers, perhaps new ones, have to hear of this member then."""
        self._learning = topic          # its share is computed after this: no wake-up is needed
        try:
            self._announce |= await self._instance.routes.refresh(topic)
        except RocketMQError as error:
            if isinstance(error, ConfigError) and not self._tasks:
                raise                   # of the start
            self._instance.warn(error, "no route of %s: %s", topic, error)
        else:
            self._say_unknown(topic)
        finally:
            self._learning = ""

    def _say_unknown(self, topic: str) -> None:
        """Once: a name that was mistyped looks like a topic without messages."""
        if self._instance.routes.knows(topic) or topic == self.rules.retry_topic:
            self._unknown.discard(topic)
        elif topic not in self._unknown:
            self._unknown.add(topic)
            log.warning("group %s: no name server knows topic %s: it is looked for until it is"
                        " made", self.rules.group, topic)

    async def _share(self, topic: str) -> list[MessageQueue] | None:
        """This member's queues of a topic; None while queues or members are unknown."""
        if self._fixed is not None:
            return [queue for queue in self._fixed if queue.topic == topic]
        if topic not in self.subscriptions:
            return []
        queues = self._instance.routes.queues_to_read(topic)
        if not queues:
            return None
        if self.rules.broadcast:
            return queues
        try:
            members = await self._sharing.members(topic)
            if not members:
                return None
            if self._instance.client_id not in members:
                self._announce = True
                self._all_taken = False
            return self.rules.allocate(self._instance.client_id, queues, members)
        except (RocketMQError, ValueError) as error:
            if isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_ERROR:
                self._announce = True   # a broker that has begun anew knows no member
                self._all_taken = False
                log.debug("the members of %s are unknown: %s", self.rules.group, error)
            elif isinstance(error, RocketMQError):
                self._instance.warn(error, "the share of %s in %s is unknown: %s",
                                    self.rules.group, topic, error)
            else:
                log.warning("the share of %s in %s is unknown: %s", self.rules.group, topic, error)
            return None

    async def _update(self, topic: str, share: list[MessageQueue]) -> bool:
        now = time.monotonic()
        last_pulls = {queue: now if self.is_suspended else held.last_pull
                      for queue, held in self.held.items() if queue.topic == topic}
        plan = changes(last_pulls, share, now, idle_max=self.rules.idle_max)
        for queue in plan.give_up:
            await self._give_up(self.held[queue])
        for queue in await self._lockable(plan.take):
            await self._take(queue)
        self._all_taken = self._all_taken and all(queue in self.held for queue in share)
        return bool(plan)

    async def _lockable(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        free = [queue for queue in queues if queue not in self._leaving]
        if not self.rules.locks or not free:
            return free
        mine, _ = await self._locks.lock(free)
        return sorted(mine)

    async def _take(self, queue: MessageQueue) -> None:
        try:
            begin = await self._start_offset(queue)
        except RocketMQError as error:
            self._instance.warn(error, "%s waits for its offset: %s", queue, error)
            return
        shown = self._instance.shown(queue)
        counts = self.stats.setdefault(queue.topic, TopicCounts()).now
        self._hold(AssignedQueue(
            queue, shown, begin, time.monotonic(), counts, orderly=self.rules.orderly,
            locked=self.rules.locks, is_marked=self.rules.manual_commit))

    def _hold(self, held: AssignedQueue) -> None:
        self.held[held.queue] = held
        held.pulls = self._instance.spawn(self._puller.loop(held))

    async def _start_offset(self, queue: MessageQueue) -> int:
        stored = await self._store.read(queue)
        begin = start(stored, self.rules.consume_from,
                      is_retry_topic=queue.topic == self.rules.retry_topic)
        if begin is Ask.MAX_OFFSET:
            return await pulling.max_offset(self._instance, queue)
        if begin is Ask.OFFSET_AT_TIME:
            return await pulling.offset_at(self._instance, queue, self.rules.start_ms)
        assert isinstance(begin, int)
        return begin

    async def _give_up(self, held: AssignedQueue) -> None:
        """The queue goes to another member: commit what is done; the rest is theirs."""
        held.drop()
        if self.rules.orderly:
            await self._wait_for_listener(held, LISTENER_END_S)
        await self._commit({held.queue: held})
        await self._let_go(held)

    async def _let_go(self, held: AssignedQueue) -> None:
        """No longer held; unlocked when no listener works on it any more (M1)."""
        if self.held.get(held.queue) is held:
            del self.held[held.queue]
        if not self.rules.orderly:
            return
        if self._sink.is_busy(held):
            self._leaving[held.queue] = held
            self._instance.spawn(self._unlock_later(held))
        elif self.rules.locks:
            await self._locks.unlock([held.queue])

    async def _unlock_later(self, held: AssignedQueue) -> None:
        while self._sink.is_busy(held):
            await asyncio.sleep(LISTENER_END_S)
        del self._leaving[held.queue]
        if self.rules.locks:
            await self._locks.unlock([held.queue])
        self._wake.set()

    async def _wait_for_listener(self, held: AssignedQueue, timeout: float) -> None:
        """Wait until no listener works on it, for a time."""
        deadline = time.monotonic() + timeout
        while self._sink.is_busy(held) and time.monotonic() < deadline:
            await asyncio.sleep(LISTENER_LOOK_S)

    # -- locks ------------------------------------------------------------------------------------

    def is_locked(self, held: AssignedQueue) -> bool:
        """Whether this member may work on an orderly queue now."""
        return not self.rules.locks or time.monotonic() - held.last_lock < LOCK_LIFE_S

    async def _renew_loop(self) -> None:
        pause = FIRST_RENEWAL_S
        while True:
            await asyncio.sleep(pause)
            pause = RENEW_S
            await steadily(self._renew)

    async def _renew(self) -> None:
        """A queue whose lock is another member's, or may have been, is given up uncommitted."""
        async with self._turn:
            await self._renew_now()

    async def _renew_now(self) -> None:
        asked = time.monotonic()
        mine, others = await self._locks.lock([*self.held, *self._leaving])
        for queue, held in list(self.held.items()):
            if queue in others or (queue in mine and asked - held.last_lock > BROKER_LOCK_LIFE_S):
                log.warning("%s: the lock of %s ended; it is taken anew", self.rules.group, queue)
                held.drop()
                await self._let_go(held)
                self._wake.set()
            elif queue in mine:
                held.last_lock = asked

    # -- offsets ----------------------------------------------------------------------------------

    async def persist(self) -> None:
        """Commit what changed; a failure is logged, and tried again later. A reset has a turn of
        its own: nothing older is committed over its offsets."""
        async with self._turn:
            await self._commit(self._kept())

    async def move(self, queue: MessageQueue, offset: int) -> None:
        """The broker corrected an offset (it may be lower than what was committed)."""
        try:
            await self.restart_at({queue: offset}, wait=LISTENER_END_S)
        except RocketMQError as error:
            log.warning("%s: offset %d could not be stored: %s", queue, offset, error)

    def _kept(self) -> dict[MessageQueue, AssignedQueue]:
        return {queue: held for queue, held in self.held.items() if not held.dropped}

    async def _commit(
        self, queues: Mapping[MessageQueue, AssignedQueue], *, wait: bool = False
    ) -> None:
        """Commit offsets that the store lacks; with `wait` all that this member ever moved, until
        brokers have them: a one-way commit may have been lost."""
        offsets = {
            queue: offset for queue, held in queues.items()
            if (offset := held.commit_offset) is not None
            and (offset != held.committed or (wait and offset != held.start_offset))}
        if not offsets:
            return
        touched = {queue: queues[queue] for queue in offsets}      # held by others when it is done
        try:
            await self._store.write(offsets, wait=wait)
        except RocketMQError as error:
            self._instance.warn(
                error, "committing offsets of %s failed: %s", self.rules.group, error)
            return
        for queue, offset in offsets.items():
            touched[queue].committed = offset

    async def _persist_loop(self) -> None:
        while True:
            await asyncio.sleep(self._instance.config.persist_interval)
            await steadily(self.persist)

    async def _sample_loop(self) -> None:
        while True:
            for stats in list(self.stats.values()):
                stats.sample(time.monotonic())
            await asyncio.sleep(SAMPLE_S)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
