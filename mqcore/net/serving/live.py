"""What of a serving process can change while it runs."""
from __future__ import annotations

from typing import NamedTuple, NotRequired, TypedDict


class LimitValues(TypedDict):
    """
    Of an address and of an account: connections, requests in flight, bytes and messages a second,
    each 0 for none, or () for none at all; exempt: (packed address, bits of it that count) each.
    """

    address_limits: NotRequired[tuple[int, ...]]
    account_limits: NotRequired[tuple[int, ...]]
    limits_exempt: NotRequired[tuple[tuple[bytes, int], ...]]


class LiveValues(LimitValues):
    """As ServingLoop.configure takes them."""

    region: str
    trace_on: bool
    body_bytes_max: int
    idle_ms_max: int
    memory_bytes: int
    memory_count_max: int
    memory_bytes_max: int
    disk_count_max: int
    disk_bytes_max: int
    replay_count_max: int
    replay_bytes_max: int
    long_polling: bool
    short_polling_ms: int
    delay_level_count: NotRequired[int]
    transactions_refused: NotRequired[bool]
    timers_refused: NotRequired[bool]
    timer_max_ms: NotRequired[int]
    filters_enabled: NotRequired[bool]
    filter_retry: NotRequired[bool]
    slave_read: NotRequired[bool]
    accept_sends_from_ms: NotRequired[int]


class Refused(NamedTuple):
    """A request that access control has refused; texts as far as they are told."""

    address: str
    port: int
    code: int                  # of the request
    reason: int                # AccessReason
    access_key: str
    name: str                  # the topic or group that it was about
