"""`python -m mqcore.spark.jobs.migrate`."""
from __future__ import annotations

from mqcore.spark.jobs.migrate.command import command

command()
