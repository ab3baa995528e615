"""The job `migrate`: from one cluster to another, with settings, messages and groups' offsets."""
from __future__ import annotations

from mqcore.spark.jobs.migrate.command import command
from mqcore.spark.jobs.migrate.phases import Migration

__all__ = ["Migration", "command"]
