"""
Transactional messaging on a database, as ready parts: docs/client/patterns.md shows each.

They stand on SQLAlchemy Core 2 (`pip install 'mqcore[patterns]'`), with SQLite or PostgreSQL. All
block; with asyncio they run in threads, or in `AsyncConnection.run_sync`.
"""
from __future__ import annotations

try:
    import sqlalchemy as _sqlalchemy
except ImportError as _error:
    raise ImportError(
        "mqcore.client.patterns needs SQLAlchemy 2: pip install 'mqcore[patterns]'") from _error

from mqcore.client.patterns.check_back import CheckBack, PendingMessage, confirmation
from mqcore.client.patterns.compensation import Compensation
from mqcore.client.patterns.idempotent import IdempotentConsumer
from mqcore.client.patterns.outbox import Outbox, ParkedMessage
from mqcore.client.patterns.relay import OutboxRelay
from mqcore.client.patterns.steps import Run, RunState, Step, StepCall
from mqcore.client.patterns.tables import create_tables, metadata
from mqcore.client.patterns.transaction_log import RolledBack, TransactionLog

if _sqlalchemy.__version__.startswith("1."):
    raise ImportError(
        f"mqcore.client.patterns: expected SQLAlchemy 2, not {_sqlalchemy.__version__}")

__all__ = [
    "CheckBack",
    "Compensation",
    "IdempotentConsumer",
    "Outbox",
    "OutboxRelay",
    "ParkedMessage",
    "PendingMessage",
    "RolledBack",
    "Run",
    "RunState",
    "Step",
    "StepCall",
    "TransactionLog",
    "confirmation",
    "create_tables",
    "metadata",
]
