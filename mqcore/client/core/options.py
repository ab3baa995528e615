"""Checks of options and arguments: each error names the parameter and what was expected."""
from __future__ import annotations

from collections.abc import Iterable

from mqcore.client.errors import ConfigError
from mqcore.wire.codes import RETRY_PREFIX, ResponseCode

GROUP_CHARACTERS_MAX = 255
TOPIC_CHARACTERS_MAX = 127
CONSUMER_GROUP_CHARACTERS_MAX = TOPIC_CHARACTERS_MAX - len(RETRY_PREFIX)    # it has a retry topic
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%|-_")


def check_known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raises ConfigError for a name that is not known, with the one that was perhaps meant."""
    allowed = sorted(known)
    for name in names:
        if name in allowed:
            continue
        import difflib  # only to say what was meant

        near = difflib.get_close_matches(name, allowed, 1)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(allowed)}"
        raise ConfigError(f"{what} {name!r} is unknown: {hint}")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` (the last colon counts); raises ConfigError, naming it."""
    host, found, port = address.rpartition(":")
    if not found or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"address {address!r}: expected host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_group(group: str, parameter: str = "group") -> str:
    """The group itself; raises ConfigError when brokers would refuse it (client.md 2.2)."""
    return _check_name(group, parameter, GROUP_CHARACTERS_MAX)


def check_consumer_group(name: str) -> str:
    """The group itself, as brokers know it; raises ConfigError when they would refuse its members,
    for `%RETRY%name` is a topic."""
    if len(name) > CONSUMER_GROUP_CHARACTERS_MAX:
        raise ConfigError(
            f"group {name!r}: expected at most {CONSUMER_GROUP_CHARACTERS_MAX} characters of a"
            f" consumer group and its namespace, not {len(name)}",
            int(ResponseCode.MESSAGE_ILLEGAL))
    return name


def check_topic(topic: str, parameter: str = "topic") -> str:
    """The topic itself; raises ConfigError when brokers would refuse it (client.md 2.2)."""
    return _check_name(topic, parameter, TOPIC_CHARACTERS_MAX)


def _check_name(name: str, parameter: str, length_max: int) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"{parameter} {name!r}: expected a str, not {type(name).__name__}")
    if not name or len(name) > length_max or not _NAME_CHARACTERS.issuperset(name):
        raise ConfigError(
            f"{parameter} {name[:length_max + 1]!r}: expected 1 to {length_max} of"
            " a-z A-Z 0-9 % | - _", int(ResponseCode.MESSAGE_ILLEGAL))
    return name


def positive_seconds(value: float, parameter: str) -> float:
    """The value itself; raises ConfigError unless it is a number of seconds above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ConfigError(f"{parameter} {value!r}: expected seconds above 0")
    return float(value)


def whole(value: int, parameter: str, low: int, high: int) -> int:
    """The value itself; raises ConfigError unless it is a whole number in the range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{parameter} {value!r}: expected a whole number, {low} to {high}")
    return value
