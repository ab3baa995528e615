"""The functions that answer requests, by code, as their decorator `answers` says."""
from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Final

from mqcore.broker.core import Core
from mqcore.broker.request import Outcome, OutcomeJob, Request
from mqcore.broker.requests import (
    access,
    admin,
    assignment,
    cleaning,
    client,
    config,
    connection,
    consume,
    group,
    grpc,
    offset,
    pull_rules,
    query,
    queue,
    recall,
    relay,
    replication,
    reply,
    reset,
    send_back,
    send_rules,
    statistics,
    timed,
    topic,
    topic_change,
    transaction,
)

Handler = Callable[[Core, Request], Outcome | OutcomeJob]


def table_of(*modules: ModuleType) -> dict[int, Handler]:
    """The handlers of modules, by code. Raises ValueError when two handlers answer one code."""
    found: dict[int, Handler] = {}
    for module in modules:
        for handler in vars(module).values():
            for code in getattr(handler, "codes", ()) if isinstance(handler, FunctionType) else ():
                if found.setdefault(code, handler) is not handler:
                    raise ValueError(f"{code.name}: {handler.__module__} and "
                                     f"{found[code].__module__} answer it")
    return found


# By the class of their histograms (mqcore/figures.py); other codes are the administrators'.
CLIENT_CODES: Final = frozenset(table_of(client, offset))
MESSAGE_CODES: Final = frozenset(table_of(
    grpc, pull_rules, recall, reply, send_back, send_rules, transaction))

HANDLERS: Final = table_of(
    access, admin, assignment, cleaning, client, config, connection, consume, group, grpc, offset,
    pull_rules, query, queue, recall, relay, replication, reply, reset, send_back, send_rules,
    statistics, timed, topic, topic_change, transaction)
