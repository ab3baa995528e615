"""Which cluster a job works on: the options of its command, and frames of topics."""
from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from mqcore.spark.errors import OptionError
from mqcore.spark.jobs.frame import settings
from mqcore.spark.options import BATCH, ROCKETMQ, Options, Parse, read_options
from mqcore.spark.topics.catalog import Offsets
from mqcore.spark.topics.positions import nested
from mqcore.spark.topics.source import NAME

Cluster = Mapping[str, str]         # options of the source: nameServer, rocketmq.*, timeout ...


def cluster_options(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--namesrv and --source, as `namesrv` and `source`."""
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option(
            "--source", multiple=True, metavar="NAME=VALUE", callback=settings,
            help="A further option of the source rocketmq; may be repeated.")(command)
        return click.option(
            "-n", "--namesrv", metavar="HOST:PORT[;HOST:PORT]", envvar="NAMESRV_ADDR",
            required=required, help="Name servers  [env: NAMESRV_ADDR].")(command)
    return decorate


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Those, and --topics or --pattern: `source`, options of the data source `rocketmq`."""
    @cluster_options()
    @click.option("--topics", metavar="NAME,...", help="Which topics.")
    @click.option("--pattern", metavar="REGEX", help="All topics with such names instead.")
    @functools.wraps(command)
    def called(namesrv: str, topics: str | None, pattern: str | None, source: dict[str, str],
               **rest: Any) -> Any:
        if (topics is None) == (pattern is None):
            raise click.UsageError("expected --topics or --pattern")
        chosen = {"subscribe": topics} if topics is not None else {"subscribePattern": pattern}
        return command(source={**chosen, **cluster_of(namesrv, source)}, **rest)
    return called


def parsed(parse: Parse) -> Callable[..., Any]:
    """The callback of an option of a command that is written as one of the source's options."""
    def callback(_ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(param.opts[0], value)
        except OptionError as error:
            raise click.BadParameter(str(error)) from None
    return callback


def cluster_of(namesrv: str, source: Mapping[str, str]) -> dict[str, str]:
    """What these two options say."""
    return {"nameServer": namesrv, **source}


def checked(cluster: Cluster) -> Options:
    """The options of a batch read from it, without any topic; raises OptionError."""
    return read_options(cluster, ROCKETMQ, BATCH, NAME)


def read(spark: Any, cluster: Cluster, **options: object) -> Any:
    """The frame of a batch read; options as of the source."""
    return spark.read.format(NAME).options(**cluster, **options).load()


def span(begins: Offsets, ends: Offsets) -> dict[str, str]:
    """Options that read these offsets of these queues, and nothing else of their topics."""
    return {"startingOffsets": json.dumps(nested(begins)),
            "endingOffsets": json.dumps(nested(ends))}
