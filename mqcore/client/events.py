"""Events in a role's life for the application: the option `on_event` (client.md 1)."""
from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from mqcore.client.core.guard import raised
from mqcore.client.message import MessageQueue
from mqcore.client.received import ReceivedMessage


class Event(Struct, frozen=True, kw_only=True):
    """The base of all events: the client that it is of (client.md 1.2)."""

    client_id: str


class Connected(Event, frozen=True, kw_only=True):
    """A connection to a broker or name server is open; `address` is host:port."""

    address: str


class Disconnected(Event, frozen=True, kw_only=True):
    """A connection has ended; `error` None: an end in order, by either side."""

    address: str
    error: Exception | None


class RouteChanged(Event, frozen=True, kw_only=True):
    """A topic's brokers or queues are others than before; the first route that is learnt, too.

    queues   those that can be read
    """

    topic: str
    queues: tuple[MessageQueue, ...]


class Rebalanced(Event, frozen=True, kw_only=True):
    """A member of a group holds other queues than before.

    taken, given_up   what changed; at the close all queues are given up
    held              all that it holds now, those of its retry topic included
    """

    group: str
    taken: tuple[MessageQueue, ...]
    given_up: tuple[MessageQueue, ...]
    held: tuple[MessageQueue, ...]


class SlowListener(Event, frozen=True, kw_only=True):
    """The application takes long: 80 % of handler_timeout are over for a message (or all:
    the message comes again), or a coroutine function blocks the event loop.

    listener   the function's name; of a consumer without one, the consumer's
    messages   what it works on; empty when the loop was blocked
    seconds    since the call began, or that the loop stood still
    expired    the time is over: the messages come again
    """

    listener: str
    messages: tuple[ReceivedMessage, ...]
    seconds: float
    expired: bool = False


EventListener = Callable[[Event], object]


def tell(listener: EventListener | None, event: Event) -> None:
    """Call the application's function; what it raises is logged."""
    if listener is None:
        return
    try:
        listener(event)
    except BaseException as error:
        raised(error, "on_event failed for %s", event)
