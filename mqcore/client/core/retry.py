"""Which failures of a send are worth another try, and what all tries say (client.md 2.7)."""
from __future__ import annotations

from collections.abc import Collection

from mqcore.client.errors import (
    CODE_BROKER_NOT_FOUND,
    BrokerError,
    ClosedError,
    ConfigError,
    ConnectError,
    NoRouteError,
    RocketMQError,
)
from mqcore.wire.codes import ResponseCode

RETRY_CODES = frozenset({
    ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_BUYER_ID, ResponseCode.NOT_IN_CURRENT_UNIT,
})


PAUSE_FIRST_S = 0.05            # before a try beyond their number; then twice as much
PAUSE_S_MAX = 0.5


def is_worth_a_retry(error: RocketMQError, codes: Collection[int] = RETRY_CODES) -> bool:
    """Whether another broker, or the same a moment later, may take the message."""
    if isinstance(error, BrokerError):
        return error.code in codes
    if isinstance(error, NoRouteError):
        return error.code == CODE_BROKER_NOT_FOUND
    return not isinstance(error, ConfigError | ClosedError)


class Tries:
    """The tries of one send: how many are left, until when, and what is known of the outcome."""

    __slots__ = ("_left", "_maybe_stored", "_pause", "deadline", "limit")

    def __init__(self, count: int, deadline: float, limit: float = 0.0) -> None:
        """At most `count` tries, none begun at or after `deadline` (seconds of any one clock).

        limit   the seconds that all tries had at the beginning
        """
        self._left = count
        self._maybe_stored = False
        self._pause = PAUSE_FIRST_S
        self.deadline: float = deadline
        self.limit: float = limit

    def begin(self) -> None:
        """Another try goes out."""
        self._left -= 1

    def take_back(self) -> None:
        """The try that was begun did not go out."""
        self._left += 1

    def note_failure(self, error: RocketMQError, now: float, codes: Collection[int]) -> bool:
        """Note how a try failed. Whether to try again."""
        self._maybe_stored = self._maybe_stored or error.stored is None
        return self.has_more(now) and is_worth_a_retry(error, codes)

    def pause(self, error: RocketMQError, now: float) -> float | None:
        """
        Seconds until a try beyond their number; None: there is none.

        A message that was never sent cannot be stored twice: while a broker restarts, it is tried
        until the deadline.
        """
        is_away = isinstance(error, ConnectError) or (
            isinstance(error, NoRouteError) and error.code == CODE_BROKER_NOT_FOUND)
        if self._maybe_stored or not is_away or now + self._pause >= self.deadline:
            return None
        pause, self._pause = self._pause, min(2 * self._pause, PAUSE_S_MAX)
        return pause

    def has_more(self, now: float) -> bool:
        """Whether another try is allowed."""
        return self._left > 0 and now < self.deadline

    def final_error(self, error: RocketMQError) -> RocketMQError:
        """The error of the whole send: if any try may have been stored, it is unknown."""
        if self._maybe_stored and error.stored is False:
            error.stored = None
        return error
