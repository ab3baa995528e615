"""What can go wrong for a client, under one base class (client.md 1.11)."""
from __future__ import annotations

CODE_CONNECT = 10001
CODE_TIMEOUT = 10002
CODE_BROKER_NOT_FOUND = 10003
CODE_NO_NAME_SERVER = 10004
CODE_NO_ROUTE = 10005


class RocketMQException(Exception):
    """The base of all errors that this client raises on purpose."""


class RemotingException(RocketMQException):
    """The transport failed."""


class RemotingConnectException(RemotingException, ConnectionError):
    """No connection could be made, or it ended while a call was waiting."""


class RemotingTimeoutException(RemotingException, TimeoutError):
    """No answer came in time; the request may have been carried out."""


class RemotingTooMuchRequestException(RemotingException):
    """The limit on calls that wait for answers is reached, or the time budget is spent."""


class MQClientException(RocketMQException):
    """A local check failed, or there is no broker to talk to; `response_code` is -1 if none."""

    def __init__(self, message: str, response_code: int = -1) -> None:
        super().__init__(message)
        self.response_code = response_code


class MQBrokerException(RocketMQException):
    """The peer answered with an error code."""

    def __init__(self, response_code: int, remark: str | None, address: str = "") -> None:
        super().__init__(f"code {response_code}: {remark or 'no remark'} ({address})")
        self.response_code = response_code
        self.remark = remark
        self.broker_addr = address
