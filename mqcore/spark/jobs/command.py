"""`mqcore spark`: each job is loaded when it is asked for."""
from __future__ import annotations

from importlib import import_module
from typing import Final

import click

JOBS: Final = {                        # name -> one line for the overview
    "archive": "Write topics to a table of Parquet files, each message once.",
    "lake-maintain": "Compact a table, drop what is old, remove orphans, keep the latest by key.",
    "replay": "Send messages of a table to a topic, each once and in order.",
    "store-audit": "Check a store at rest, as `mqcore store verify` does, on Spark.",
    "transactions": "What was decided about transactional messages, and what is open.",
    "trace": "Latencies, errors and retries, by the traces of clients.",
    "dlq": "What dead letters have in common, and dead letters sent again.",
    "reconcile": "Compare a topic with a lake's table, or with another cluster.",
    "migrate": "Move a cluster to another: settings, messages, groups' offsets.",
    "lag": "How far groups and streams are behind, and where that is uneven.",
}


class JobGroup(click.Group):
    """The job NAME is `command` of mqcore.spark.jobs.NAME."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        try:
            module = import_module(f"mqcore.spark.jobs.{cmd_name.replace('-', '_')}")
        except ImportError as error:
            if error.name is None or error.name.startswith("mqcore"):
                raise
            raise click.ClickException(
                f"jobs need {error.name}: pip install 'mqcore[spark]'") from None
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(JOBS.items()))


@click.command("spark", cls=JobGroup)
def spark_group() -> None:
    """
    Jobs on Spark: each prints one JSON line, and its exit status says whether all is well.

    Each is a function on a SparkSession, too: docs/spark/jobs.md.
    """
