"""A reader's filter of its topics: tags, or an SQL92 expression that is checked at the call."""
from __future__ import annotations

import contextlib

from mqcore.client.errors import ConfigError
from mqcore.wire.sql92_parser import parse
from mqcore.wire.sql92_tokens import SqlLimit
from mqcore.wire.tags import EXPRESSION_SQL92, SUBSCRIBE_ALL, Subscription, parse_subscription


def read_filter(tags: str, sql: str | None) -> Subscription:
    """The subscription that each pull brings; its topic is not set.

    Raises ConfigError for both, and for what brokers refuse.
    """
    try:
        if sql is None:
            return parse_subscription("", tags)
        if tags != SUBSCRIBE_ALL:
            raise ConfigError("filter and sql: expected only one")
        with contextlib.suppress(SqlLimit):     # how much is too much is the broker's to say
            parse(sql)
        return parse_subscription("", sql, expression_type=EXPRESSION_SQL92)
    except ValueError as error:
        raise ConfigError(f"{'filter' if sql is None else 'sql'}: {error}") from error
