"""
The errors of a client, under one base class (client.md 1.11).

Every error says whether the message that it is about is stored, as far as this end can know; that
is all that an application needs to decide what to do next. Java's names stay as aliases.
"""
from __future__ import annotations

from typing import Any, ClassVar, Final

from mqcore.wire.codes import ResponseCode

CODE_CONNECT: Final = 10001
CODE_TIMEOUT: Final = 10002
CODE_BROKER_NOT_FOUND: Final = 10003
CODE_NO_NAME_SERVER: Final = 10004
CODE_NO_ROUTE: Final = 10005
CODE_NO_REPLY: Final = 10006
CODE_NOT_A_REQUEST: Final = 10007

# Refused before anything was written, and worth another try; of other brokers, or later.
REFUSED_FOR_NOW: Final = frozenset({
    ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL,
})
# May have been written: what failed is not told.
OUTCOME_UNKNOWN: Final = frozenset({ResponseCode.SYSTEM_ERROR})
# Codes that answer a send only before anything is written (broker.md 2.2 to 2.4). Other codes
# leave the outcome open.
NOT_STORED: Final = frozenset({
    ResponseCode.SYSTEM_BUSY, ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_BUYER_ID, ResponseCode.NOT_IN_CURRENT_UNIT,
    ResponseCode.FLOW_CONTROL,
})
# A stock broker that clears its queue of sends answers so while a thread may work on such a send.
_MAYBE_BEGUN: Final = ("[TIMEOUT_CLEAN_QUEUE]", "[PCBUSY_CLEAN_QUEUE]")


class RocketMQError(Exception):
    """
    The base of all errors that this client raises on purpose.

    stored     of a send: True the broker has the message, False it has not, None unknown
               (sending it again may store it twice). Of anything else: False
    retryable  whether the same call may succeed later without a change
    code       the broker's response code, or one of the client's own (10001 ...); -1: none
    remark     what the broker said, "" if nothing
    broker     host:port of who answered or did not, "" if none was asked
    topic      of the message or the call, "" if it has none
    """

    retryable: bool = False
    default_code: ClassVar[int] = -1

    def __init__(self, message: str, code: int | None = None, *, remark: str = "",
                 broker: str = "", topic: str = "", stored: bool | None = False) -> None:
        super().__init__(message)
        self.code: int = self.default_code if code is None else code
        self.remark = remark
        self.broker = broker
        self.topic = topic
        self.stored = stored

    @property
    def response_code(self) -> int:
        """Java's name of `code`."""
        return self.code

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles whole, whatever its constructor asks for."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[RocketMQError], args: tuple[Any, ...],
              state: dict[str, Any]) -> RocketMQError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


# -- nothing was sent -----------------------------------------------------------------------------


class ClientError(RocketMQError):
    """A local check failed, or there is no broker to ask."""


class ConfigError(ClientError, ValueError):
    """An option or argument that cannot be: the message names it, and what was expected."""


class MessageTooLarge(ConfigError):
    """A body, or all properties together, beyond the limit."""

    default_code: ClassVar[int] = int(ResponseCode.MESSAGE_ILLEGAL)


class ClosedError(ClientError):
    """The client is not started, is closed, or was started in the process that forked this one."""


class NoRouteError(ClientError):
    """
    No name server is known, or none knows where the topic or the broker is.

    is_no_such_topic  a name server answered that there is no such topic, while it knows brokers;
                      False: no name server answered, no broker is registered, or no broker of
                      the topic takes messages
    """

    retryable = True
    is_no_such_topic: bool = False
    default_code = CODE_NO_ROUTE


class QueueFull(ClientError):
    """Too much is on its way already, and the time to wait for room is over."""

    retryable = True


# -- the transport --------------------------------------------------------------------------------


class RemotingError(RocketMQError):
    """The transport failed."""

    retryable = True


class ConnectError(RemotingError, ConnectionError):
    """No connection could be made, or it ended while a call was waiting (`stored`: None)."""

    default_code = CODE_CONNECT


class RequestTimeout(RemotingError, TimeoutError):
    """No answer came in time; the request may have been carried out (`stored`: None)."""

    default_code = CODE_TIMEOUT


# -- the answer -----------------------------------------------------------------------------------


class BrokerError(RocketMQError):
    """The broker, or name server, answered with an error code."""

    def __init__(self, code: int, remark: str | None, broker: str = "", *, topic: str = "") -> None:
        about = f", topic {topic}" if topic else ""
        super().__init__(
            f"code {code}: {remark or 'no remark'} ({broker}{about})", code, remark=remark or "",
            broker=broker, topic=topic, stored=None if code in OUTCOME_UNKNOWN else False)
        self.retryable: bool = code in REFUSED_FOR_NOW or code in OUTCOME_UNKNOWN


class AccessDenied(BrokerError):
    """The broker knows no such access key, or its owner may not do this (code 16)."""


def broker_error(code: int, remark: str | None, broker: str = "", *,
                 topic: str = "") -> BrokerError:
    """The error for an answer with this code."""
    kind = AccessDenied if code == ResponseCode.NO_PERMISSION else BrokerError
    return kind(code, remark, broker, topic=topic)


def send_error(code: int, remark: str | None, broker: str, topic: str) -> BrokerError:
    """The error for the answer to a send: it says whether the message may be stored."""
    error = broker_error(code, remark, broker, topic=topic)
    begun = code == ResponseCode.SYSTEM_BUSY and error.remark.startswith(_MAYBE_BEGUN)
    error.stored = False if code in NOT_STORED and not begun else None
    return error


# -- Java's names ---------------------------------------------------------------------------------

RocketMQException = RocketMQError
MQClientException = ClientError
MQBrokerException = BrokerError
RequestTimeoutException = RequestTimeout
RemotingException = RemotingError
RemotingConnectException = ConnectError
RemotingTimeoutException = RequestTimeout
RemotingTooMuchRequestException = QueueFull
