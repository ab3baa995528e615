"""`mqcore spark migrate`."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from mqcore.spark.jobs.frame import Outcome, run, seconds_of, settings, spark_options
from mqcore.spark.jobs.migrate.phases import MESSAGES_MAX, Migration

PHASES: Final = ("copy", "cutover", "verify")


@click.command("migrate")
@click.option("--phase", type=click.Choice(PHASES), required=True,
              help="copy, again and again; cutover at last; verify.")
@click.option("--source", required=True, metavar="NAMESRV", help="The old cluster's name servers.")
@click.option("--target", required=True, metavar="NAMESRV", help="The new cluster's name servers.")
@click.option("--state", required=True, type=click.Path(file_okay=False, path_type=Path),
              help="A folder for the table of offsets, of this migration alone.")
@click.option("--topics", metavar="REGEX",
              help="Topics whose whole names match [default: all but the brokers' own].")
@click.option("--groups", metavar="REGEX",
              help="Groups whose whole names match [default: all but the brokers' own].")
@click.option("--broker", "brokers", multiple=True, callback=settings, metavar="OLD=NEW",
              help="Which broker goes to which; may be repeated.")
@click.option("--source-option", "source_options", multiple=True, callback=settings,
              metavar="NAME=VALUE", help="Of the old cluster, such as rocketmq.accessKey.")
@click.option("--target-option", "target_options", multiple=True, callback=settings,
              metavar="NAME=VALUE", help="Of the new cluster, such as rocketmq.accessKey.")
@click.option("--sink-option", "sink", multiple=True, callback=settings, metavar="NAME=VALUE",
              help="More of the sink, such as rowsPerSecond.")
@click.option("--messages-max", type=click.IntRange(1), default=MESSAGES_MAX, show_default=True,
              help="Messages of one round.")
@click.option("--broken", type=click.Choice(["fail", "raw"]), default="fail", show_default=True,
              help="Of messages whose body nobody can decompress; raw: copied as they are stored.")
@click.option("--open-dead-letters", is_flag=True,
              help="copy: make dead letters' topics readable on the old cluster.")
@click.option("--stop-writes", is_flag=True,
              help="cutover: name servers show the old brokers as not writable.")
@click.option("--drain", multiple=True, metavar="GROUP",
              help="cutover: wait until it has consumed all; may be repeated.")
@click.option("--quiet", default="45s", show_default=True, callback=seconds_of, metavar="TIME",
              help="cutover: nothing more comes when nothing came for so long.")
@click.option("--wait", default="10m", show_default=True, callback=seconds_of, metavar="TIME",
              help="cutover: for that, at most.")
@spark_options
def command(
    phase: str, source: str, target: str, state: Path, source_options: dict[str, str],
    target_options: dict[str, str], open_dead_letters: bool, stop_writes: bool,
    drain: tuple[str, ...], quiet: float, wait: float, master: str, confs: dict[str, str],
    **more: Any,
) -> None:
    """
    Move a cluster, topics, groups, messages and offsets, to another one.

    Exit status: 0 done; 1 something is left, was lost before it was copied, or is there twice;
    2 not done: run it again. The run-book is docs/spark/migrate.md.
    """
    migration = Migration({**source_options, "nameServer": source},
                          {**target_options, "nameServer": target}, state, **more)

    def job(spark: Any) -> Outcome:
        if phase == "copy":
            return migration.copy(spark, open_dead_letters=open_dead_letters)
        if phase == "cutover":
            return migration.cutover(spark, stop_writes=stop_writes, drain=drain, quiet_s=quiet,
                                     wait_s=wait)
        return migration.verify(spark)

    run("migrate", job, master=master, confs=confs)
