"""The engine of producers: queues, connections, tries and limits of everything that is on its way.

It runs in the event loop's thread and never waits: what cannot go out yet, because a route or a
connection is missing, is held in order until a task has got it.
"""
from __future__ import annotations

import asyncio
import copy
import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mqcore.client.core.faults import FaultTable
from mqcore.client.core.guard import raised
from mqcore.client.core.room import Room
from mqcore.client.core.selection import QueueTurns, queue_by_shard
from mqcore.client.errors import (
    CODE_BROKER_NOT_FOUND,
    ClientError,
    ClosedError,
    ConfigError,
    NoRouteError,
    RequestTimeout,
    RocketMQError,
)
from mqcore.client.hooks import Hooks
from mqcore.client.message import MessageQueue, SendResult, SendStatus
from mqcore.client.native.sends import SendFrames
from mqcore.client.network.connection import Connection
from mqcore.client.network.pool import client_request
from mqcore.client.network.reading import Stored
from mqcore.client.produce.producer_config import ProducerConfig
from mqcore.client.produce.send_header import send_fields
from mqcore.client.produce.sending import Sending
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire.codes import FLAG_ONEWAY, LanguageCode, RequestCode, ResponseCode
from mqcore.wire.command import Ext, encode, next_opaque
from mqcore.wire.properties import (
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    encode_properties,
)

VIP_PORT_STEP = 2
_RETRY_PREFIX = "%RETRY%"

log: Final = logging.getLogger("mqcore.client")


class Sender:
    """Sends of one producer."""

    def __init__(
        self, instance: ClientInstance, config: ProducerConfig, group: str, hooks: Hooks
    ) -> None:
        """`group` is the name that brokers know, with the namespace."""
        self.instance = instance
        self.config = config
        self.group = group
        self.hooks = hooks
        self.namespace: str = instance.config.namespace
        self.room: Room = Room(config.max_in_flight, config.max_in_flight_bytes)
        self._routes = instance.routes
        self._pool = instance.pool
        self._faults = FaultTable() if config.latency_faults else None
        self._turns: dict[str, QueueTurns] = {}
        self._frames: dict[tuple[str, str], SendFrames] = {}
        self._held: dict[str, list[Sending]] = {}           # topic or address -> its waiters
        self._lanes: dict[MessageQueue, deque[Sending]] = {}  # queues with one `is_alone` under way
        self._room_waiters: deque[asyncio.Future[None]] = deque()
        self._idle_waiters: list[asyncio.Future[None]] = []
        client = instance.config
        self._is_plain = client.account is None and not client.stream
        self._learning: set[str] = set()        # topics that were just made
        self._is_in_lane = False
        self._is_vip = client.vip_channel
        self.is_closed: bool = False
        self.recaller: Callable[..., Any]       # the producer's `recall`
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Belong to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """From now on no failure is tried again."""
        self.is_closed = True

    # -- room and rest ----------------------------------------------------------------------------

    async def wait_for_room(self, size: int, timeout: float, count: int = 1) -> bool:
        """Take `count` messages of `size` bytes in as soon as they fit; whether they did."""
        deadline = self._loop.time() + timeout
        has_waited = False
        try:
            while not self.room.try_take(size, count):
                waiter: asyncio.Future[None] = self._loop.create_future()
                if has_waited:
                    self._room_waiters.appendleft(waiter)       # it keeps its turn
                else:
                    self._room_waiters.append(waiter)
                has_waited = True
                if self.room.try_take(size, count):     # a thread gave it before it saw the waiters
                    self._room_waiters.remove(waiter)
                    break
                async with asyncio.timeout_at(deadline):
                    await waiter
        except TimeoutError:
            return False
        finally:
            if has_waited:
                self._wake_for_room()       # there may be room for the next one, or it was woken in
        return True                         # this one's stead

    def _wake_for_room(self) -> None:
        """Let the next waiter for room look again."""
        while self._room_waiters:
            waiter = self._room_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    async def wait_until_idle(self) -> None:
        """Until every send has its outcome."""
        while self.room.count:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle_waiters.append(waiter)
            if self.room.count:         # a thread may have ended the last one before it saw this
                await waiter

    # -- the way of one send ----------------------------------------------------------------------

    def submit(self, sending: Sending) -> None:
        """Send it; `sending.outcome` gets the outcome. Room was taken for it."""
        sending.sender = self
        self._go(sending)

    def send_here(self, sending: Sending) -> SendResult | bool:
        """Send it in the caller's thread, which waits for the outcome; room was taken for it.

        Returns the result if the thread read it; True: the loop tells the outcome, perhaps after
        more tries. False: it is not sent, something has to be waited for or done in order; `submit`
        it.
        """
        if (self.hooks.all or sending.call is not None or self._faults is not None
                or not self._is_plain or sending.is_alone or sending.batch is not None
                or self._held or self.is_closed):
            return False
        queues, turns = self._routes.known_queues(sending.topic), self._turns.get(sending.topic)
        if not queues or turns is None:
            return False
        queue = turns.next(queues)
        address = self._routes.masters.get(queue.broker_name)
        if address is None:
            return False
        if self._is_vip:
            address = vip_address(address)
        connection = self._pool.open_connection(address)
        if connection is None:
            return False
        frame, opaque = bytearray(), next_opaque()
        try:
            self.write(sending, queue, opaque, frame, is_oneway=False)
        except Exception:
            return False                # the loop comes upon it as well, and tells it
        sending.here = opaque           # before it has a sender: then it would be the loop's
        sending.sender, sending.sent_to = self, queue
        sending.broker, sending.connection = address, connection
        sending.began, sending.deadline = self._loop.time(), sending.tries.deadline
        sending.tries.begin()
        if connection.write_here(opaque, sending, frame):
            answer = connection.read_here(opaque, sending)
            return True if answer is None else self._stored_here(sending, answer)
        sending.sender, sending.here = None, 0
        sending.tries.take_back()
        sending.sent_to = None          # else the next choice avoids its broker
        return False

    def _stored_here(self, sending: Sending, answer: Stored) -> SendResult | bool:
        """Take an answer in the thread that waits for it; what asks for more is the loop's."""
        if answer[0] != ResponseCode.SUCCESS or self._routes.is_guess(sending.topic):
            self._loop.call_soon_threadsafe(sending.stored, *answer)
            return True
        result = sending.result_of(*answer)
        left = self._settle(sending)
        if self._room_waiters or (left == 0 and self._idle_waiters):
            self._loop.call_soon_threadsafe(self._wake, left)
        return result

    def left_here(self, sending: Sending) -> None:
        """The thread that sent it was interrupted, wherever it was: what it left undone; in the
        loop."""
        connection, here = sending.connection, sending.here
        if sending.is_ended or not sending.has_room or (sending.sender is not None and here == 0):
            return                      # it has its outcome, was never begun, or is the loop's
        if connection is not None and here and connection.left_here(here):
            return                      # the answer, or its time, ends it
        self._end(sending, None, ClientError(
            "the thread that sent it was interrupted", topic=sending.message.topic,
            stored=None if here else False))

    def holds(self, topic: str) -> bool:
        """Whether messages wait for the topic's route: others wait behind them."""
        return topic in self._held

    def knows_way(self, sending: Sending) -> bool:
        """Whether its route and its queue's broker are known, and no selector is to be called."""
        if callable(sending.shard):
            return False
        queue = sending.queue
        if queue is not None:
            return queue.broker_name in self._routes.masters
        return bool(self._routes.known_queues(sending.topic))

    def gone(self, sending: Sending, error: RocketMQError | None) -> None:
        """A one-way send left, or never will."""
        self._end(sending, None, error)

    def write_oneway(self, sending: Sending) -> bool:
        """Write a send that gets no answer; False: its way has to be looked for (`way_of`).

        Raises RocketMQError of a bad shard or selector, or of a frame that is too large.
        """
        queue = sending.queue
        if queue is None:
            queues = self._routes.known_queues(sending.topic)
            if not queues:
                return False
            queue = self._choose(sending, queues, self._loop.time())
        address = self._routes.masters.get(queue.broker_name)
        if address is None:
            return False
        connection = self._pool.open_connection(vip_address(address) if self._is_vip else address)
        if connection is None or not connection.is_writable:
            return False
        self.write(sending, queue, next_opaque(), connection.out, is_oneway=True)
        connection.plan_flush()
        return True

    def _go(self, sending: Sending) -> None:
        """One try, or a place in the line of sends that wait for the same."""
        sending.here = 0
        now = self._loop.time()
        if now >= sending.tries.deadline:
            self._end(sending, None, RequestTimeout(
                f"no time was left to send to {sending.message.topic}",
                topic=sending.message.topic, stored=False))
            return
        queue = sending.queue or sending.chosen
        if queue is None:
            queues = self._routes.known_queues(sending.topic)
            if not queues or sending.topic in self._held:
                self._hold(sending.topic, sending, self._learn_route)
                return
            try:
                queue = self._choose(sending, queues, now)
            except Exception as error:
                self._end(sending, None, self.local_error(error, sending))
                return
        if sending.is_alone and not self._takes_turn(sending, queue):
            return
        address = self._routes.masters.get(queue.broker_name)
        if address is None:
            self._hold(sending.topic, sending, self._learn_route)
            return
        if self._is_vip:
            address = vip_address(address)
        connection = self._pool.open_connection(address)
        sending.sent_to = queue
        if connection is None or address in self._held:
            sending.chosen = queue
            self._hold(address, sending, self._connect)
            return
        sending.tries.begin()
        sending.chosen, sending.broker, sending.connection = None, address, connection
        sending.began, sending.deadline = now, sending.tries.deadline
        try:
            if self.hooks.all:
                self.hooks.before_send(sending)
            opaque = next_opaque()
            self.write(sending, queue, opaque, connection.out, is_oneway=False)
        except Exception as error:
            self.failed(sending, self.local_error(error, sending))
            return
        connection.sent(opaque, sending)

    def _choose(
        self, sending: Sending, queues: list[MessageQueue], now: float
    ) -> MessageQueue:
        """The queue of the next try. Raises ConfigError, ClientError of a bad shard or selector."""
        if sending.shard is not None:
            sending.queue = self._selected(sending, queues)
            return sending.queue
        turns = self._turns.get(sending.topic)
        if turns is None:
            turns = self._turns[sending.topic] = QueueTurns()
        if self._faults is not None:
            return turns.next_available(queues, self._faults, now)
        last = sending.sent_to
        return turns.next(queues, None if last is None else last.broker_name)

    def _selected(self, sending: Sending, queues: list[MessageQueue]) -> MessageQueue:
        if not callable(sending.shard):
            return queue_by_shard(queues, sending.shard)
        topic = sending.message.topic
        shown = [MessageQueue(topic, q.broker_name, q.queue_id) for q in queues] \
            if self.namespace else list(queues)
        try:
            chosen = sending.shard(shown)
        except BaseException as error:  # the application's code: whatever it raises
            raised(error, "the selector of a queue failed for topic %s", topic)
            raise ClientError(f"the selector of a queue failed: {error!r}", topic=topic) from error
        if chosen not in shown:
            raise ConfigError(f"selector: expected one of the {len(shown)} queues of {topic},"
                              f" not {chosen!r}")
        return queues[shown.index(chosen)]

    def write(
        self, sending: Sending, queue: MessageQueue, opaque: int, out: bytearray, *,
        is_oneway: bool,
    ) -> None:
        """Append the frame of one try (remoting.md 4.1). Raises MessageTooLarge."""
        born_ms = time.time_ns() // 1_000_000
        if self._is_plain and not sending.topic.startswith(_RETRY_PREFIX):
            key = (queue.topic, queue.broker_name)
            frames = self._frames.get(key)
            if frames is None:
                frames = self._frames[key] = self._frames_of(queue)
            frames.put(
                out, sending.code, opaque, queue.queue_id, sending.sys_flag, born_ms,
                sending.message.flag, sending.properties, sending.body,
                sending.batch is not None, is_oneway)
            return
        command = client_request(
            RequestCode(sending.code), self._ext(sending, queue, born_ms), sending.body)
        command.opaque = opaque
        command.flag = FLAG_ONEWAY if is_oneway else 0
        if self._pool.prepare is not None:
            self._pool.prepare(command)
        out += encode(command)

    def _frames_of(self, queue: MessageQueue) -> SendFrames:
        client = self.instance.config
        return SendFrames(
            self.group, queue.topic, queue.broker_name,
            default_topic=self.config.template_topic,
            default_queue_count=self.config.template_queue_count,
            language=LanguageCode(client.language).name, unit_mode=client.unit_mode)

    def _ext(self, sending: Sending, queue: MessageQueue, born_ms: int) -> Ext:
        properties, config = sending.properties, self.config
        is_retry = sending.topic.startswith(_RETRY_PREFIX)
        return send_fields(
            self.group, queue.topic, queue, encode_properties(dict(properties)), born_ms=born_ms,
            flag=sending.message.flag, sys_flag=sending.sys_flag,
            template_topic=config.template_topic,
            template_queue_count=config.template_queue_count,
            is_batch=sending.batch is not None, unit_mode=self.instance.config.unit_mode,
            reconsume_times=properties.get(RECONSUME_TIME, "0") if is_retry else "0",
            reconsume_times_max=properties.get(MAX_RECONSUME_TIMES) if is_retry else None)

    async def way_of(self, sending: Sending) -> tuple[MessageQueue, Connection]:
        """The queue and the connection of a send that gets no answer. Raises RocketMQError."""
        queue = sending.queue
        if queue is None:
            queues = await self._routes.queues_to_publish(
                sending.topic, timeout=self.config.send_timeout)
            queue = self._choose(sending, queues, self._loop.time())
        elif queue.broker_name not in self._routes.masters:
            await self._learn_route(sending.topic)
        return queue, await self._pool.connection(self._address(queue))

    def _address(self, queue: MessageQueue) -> str:
        address = self._routes.master(queue.broker_name)
        return vip_address(address) if self._is_vip else address

    # -- outcomes ---------------------------------------------------------------------------------

    def stored(self, sending: Sending, result: SendResult) -> None:
        """A broker has it."""
        if self.hooks.all:
            self.hooks.after_send(sending, result, None)
        if self._faults is not None:
            self._note(sending, failed=False)
        if self._routes.is_guess(sending.topic) and sending.topic not in self._learning:
            self._learning.add(sending.topic)
            self.instance.spawn(self._learn_new_topic(sending.topic))
        if result.status is not SendStatus.SEND_OK and self.config.retry_not_ok:
            sending.stored_not_ok = result
            if sending.tries.has_more(self._loop.time()) and not self.is_closed:
                self._go(sending)
                return
        self._end(sending, result, None)

    def failed(self, sending: Sending, error: RocketMQError) -> None:
        """A try failed: the next one, or the end."""
        if sending.is_ended:
            return
        sending.chosen = None
        self.instance.doubt_routes(error)
        if self.hooks.all:
            self.hooks.after_send(sending, None, error)
        if self._faults is not None and sending.sent_to is not None:
            self._note(sending, failed=True)
        now = self._loop.time()
        pause: float | None = 0.0
        if not sending.tries.note_failure(error, now, self.config.retry_codes):
            pause = sending.tries.pause(error, now)
        if pause is None or self.is_closed:
            self._end(sending, None, error)
            return
        if sending.may_move and sending.queue is not None:
            self._leave_lane(sending)
            sending.queue, sending.is_alone = None, False
        if pause:
            self._loop.call_later(pause, self._go_again, sending, error)
        else:
            self._go(sending)

    def _go_again(self, sending: Sending, error: RocketMQError) -> None:
        """After a pause."""
        if self.is_closed:
            self._end(sending, None, error)
        elif not sending.is_ended:
            self._go(sending)

    @staticmethod
    def local_error(error: Exception, sending: Sending) -> RocketMQError:
        """The error that stopped a message on this side, as a client's error."""
        if isinstance(error, RocketMQError):
            return error
        log.error("a message to %s could not be made", sending.message.topic, exc_info=error)
        return ConfigError(f"the message cannot be sent: {error!r}", topic=sending.message.topic)

    def _note(self, sending: Sending, *, failed: bool) -> None:
        assert self._faults is not None
        assert sending.sent_to is not None
        now = self._loop.time()
        self._faults.note(sending.sent_to.broker_name, now - sending.began, failed, now)

    def _end(
        self, sending: Sending, result: SendResult | None, error: RocketMQError | None
    ) -> None:
        if sending.is_ended:
            return
        left = self._finish(sending, result, error)
        if sending.is_alone:
            self._leave_lane(sending)
        if sending.after is not None:
            sending.after(sending)
        self._wake(left)

    def _finish(
        self, sending: Sending, result: SendResult | None, error: RocketMQError | None
    ) -> int:
        """Tell its outcome; how many messages are still on their way."""
        left = self._settle(sending)
        if result is None:
            result = sending.stored_not_ok
        sending.finish(result, error and sending.tries.final_error(error))
        return left

    def _settle(self, sending: Sending) -> int:
        """It has its outcome; how many messages are still on their way. Any thread."""
        left = self.room.give(
            sending.size, 1 if sending.batch is None else len(sending.batch), sending)
        sending.is_ended = True
        return left

    def _wake(self, left: int) -> None:
        """There is room again, and `left` messages are on their way."""
        self._wake_for_room()
        if left == 0 and self._idle_waiters:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # -- one after the other ----------------------------------------------------------------------

    def _takes_turn(self, sending: Sending, queue: MessageQueue) -> bool:
        """Whether it goes now; else it goes when the one before it has its outcome."""
        lane = self._lanes.get(queue)
        if lane is None:
            self._lanes[queue] = deque((sending,))
            return True
        if lane[0] is sending:
            return True                 # another try of the one whose turn it is
        lane.append(sending)
        return False

    def _leave_lane(self, sending: Sending) -> None:
        queue = sending.queue
        lane = None if queue is None else self._lanes.get(queue)
        if queue is None or not lane or lane[0] is not sending:
            return                      # it ended before it had a turn
        lane.popleft()
        if not lane:
            del self._lanes[queue]
        elif self._is_in_lane:          # this end is already one that a lane led to
            self._loop.call_soon(self._go, lane[0])
        else:
            self._is_in_lane = True
            try:
                self._go(lane[0])
            finally:
                self._is_in_lane = False

    # -- waiting for a route or a connection ------------------------------------------------------

    def _hold(
        self, key: str, sending: Sending, work: Callable[[str], Coroutine[Any, Any, None]]
    ) -> None:
        """Wait in line for a topic's route or a connection, which `work(key)` gets."""
        held = self._held.get(key)
        if held is not None:
            held.append(sending)
            return
        self._held[key] = [sending]
        looking = self.instance.spawn(self._look_for(key, work, sending.tries.deadline))
        # a task that is cancelled before its first step runs none of its own code
        looking.add_done_callback(functools.partial(self._release, key))

    @staticmethod
    async def _look_for(
        key: str, work: Callable[[str], Coroutine[Any, Any, None]], deadline: float
    ) -> RocketMQError | None:
        """Why it cannot be had; None: it is there."""
        try:
            async with asyncio.timeout_at(deadline):
                await work(key)
        except RocketMQError as error:
            return error
        except TimeoutError:
            return RequestTimeout(f"nothing came of {key} in time", stored=False)
        except Exception as error:
            log.exception("finding the way to %s failed", key)
            return ClientError(f"no way to {key} was found: {error!r}")
        return None

    def _release(self, key: str, looking: asyncio.Task[RocketMQError | None]) -> None:
        """Let those who wait continue; fail them when it cannot be had."""
        failure = ClosedError("the producer is closed") if looking.cancelled() else looking.result()
        for sending in self._held.pop(key, []):
            broken = failure or self._no_broker(sending)
            if broken is None:
                self._go(sending)
            else:
                own = copy.copy(broken)
                own.topic, own.stored = sending.message.topic, False
                sending.tries.begin()
                self.failed(sending, own)

    def _no_broker(self, sending: Sending) -> RocketMQError | None:
        """The error of a queue that the application chose; None: there is none."""
        queue = sending.queue
        if queue is None or queue.broker_name in self._routes.masters:
            return None
        return NoRouteError(f"broker {queue.broker_name} has no master", CODE_BROKER_NOT_FOUND)

    async def _learn_route(self, topic: str) -> None:
        routes = self._routes
        if routes.knows(topic):             # without a master for now: look again
            await routes.refresh(topic, timeout=self.config.send_timeout)
        queues = await routes.queues_to_publish(topic, timeout=self.config.send_timeout)
        for queue in queues:
            routes.master(queue.broker_name)

    async def _connect(self, address: str) -> None:
        """Connect, and say who we are: brokers forget us with the connection."""
        await self._pool.connection(address)
        if not self._is_vip:
            self.instance.spawn(self.instance.greet(address))

    async def _learn_new_topic(self, topic: str) -> None:
        """The broker has just made the topic: ask for its own route, now or at the next send."""
        try:
            await self._routes.refresh(topic, timeout=self.config.send_timeout)
        except RocketMQError as error:
            log.debug("no route of %s yet: %s", topic, error)
        finally:
            self._learning.discard(topic)


def vip_address(address: str) -> str:
    """The broker's second port, two below the first one (client.md 1.9)."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - VIP_PORT_STEP}"
