"""
What all jobs have in common: a session, a progress bar, one JSON line, an exit status.

A job is a function on a SparkSession that returns an Outcome; `job_command` makes its command.
"""
from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import click

from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.options import seconds

EXIT_FINE: Final = 0
EXIT_MISMATCH: Final = 1
EXIT_NOT_DONE: Final = 2
LIST_COUNT: Final = 20                 # rows that a job prints, where nothing else is asked for
BAR_INTERVAL_S: Final = 0.2
SETTINGS: Final = {                    # where neither --conf nor the cluster says otherwise
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
LOCAL: Final = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1"}


@dataclass
class Outcome:
    """
    What a job has to say.

    status   0: as it should be; another: a mismatch
    figures  members of the report line
    """

    status: int = EXIT_FINE
    figures: dict[str, Any] = field(default_factory=dict)


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--master and --conf."""
    command = click.option(
        "--conf", "confs", multiple=True, metavar="NAME=VALUE", callback=settings,
        help="A setting of Spark; may be repeated.")(command)
    return click.option("--master", default="local[*]", show_default=True,
                        help="Spark's master, such as spark://host:7077.")(command)


def settings(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
             ) -> dict[str, str]:
    """The values of an option that is given as NAME=VALUE, again and again."""
    found = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r}: expected NAME=VALUE, such as "
                                     "spark.executor.memory=4g")
        found[name.strip()] = rest.strip()
    return found


def seconds_of(_ctx: click.Context, param: click.Parameter, value: str) -> float:
    """For options that are times: `500ms`, `10s`, `15m`; 0."""
    try:
        return 0.0 if value.strip() == "0" else seconds(f"--{param.name}", value)
    except OptionError as error:
        raise click.BadParameter(str(error)) from None


def session(name: str, master: str, confs: dict[str, str]) -> Any:
    """A SparkSession with the settings of jobs. Raises ClickException without pyspark."""
    try:
        from mqcore.spark import builder as session_builder
    except ImportError:
        raise click.ClickException("jobs need pyspark: pip install 'mqcore[spark]'") from None
    builder = session_builder(f"mqcore {name}").master(master)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in {**SETTINGS, **(LOCAL if master.startswith("local") else {}),
                       **confs}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def run(name: str, job: Callable[[Any], Outcome], *, master: str, confs: dict[str, str]) -> None:
    """
    Run a job in a session of its own, print its report as one JSON line, end with its status.

    Status 2: it was not done; one line on stderr says why.
    """
    began = time.monotonic()
    spark = session(name, master, confs)
    try:
        with progress(spark, name):
            outcome = job(spark)
    except Exception as error:
        click.echo(f"{name}: {one_line(error)}", err=True)
        sys.exit(EXIT_NOT_DONE)
    finally:
        spark.stop()
    click.echo(json.dumps({"job": name, "status": outcome.status,
                           "seconds": round(time.monotonic() - began, 3), **outcome.figures}))
    sys.exit(outcome.status)


def one_line(error: BaseException) -> str:
    """What an error says, without the traces of the processes that it came through."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        module, _, rest = line.partition(": ")
        if module.startswith("mqcore.") and " " not in module and rest:
            return rest
    if isinstance(error, SparkSourceError | OSError | ValueError) or not lines:
        return str(error) or type(error).__name__
    return lines[0]


@contextmanager
def progress(spark: Any, label: str) -> Iterator[None]:
    """A bar of the tasks that are done, while Spark works, on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    stop = threading.Event()
    with click.progressbar(length=1, label=label, file=sys.stderr, show_eta=False) as bar:
        thread = threading.Thread(target=_follow, args=(spark, bar, stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            bar.update(max((bar.length or 0) - bar.pos, 0))


def _follow(spark: Any, bar: Any, stop: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    tasks: dict[int, tuple[int, int]] = {}             # (done, all) of each stage that was seen
    while not stop.wait(BAR_INTERVAL_S):
        for number in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(number)
            if stage is not None:
                tasks[number] = (stage.numCompletedTasks, stage.numTasks)
        for number in set(tasks) - set(tracker.getActiveStageIds()):
            tasks[number] = (tasks[number][1], tasks[number][1])
        bar.length = max(sum(total for _, total in tasks.values()), 1)
        bar.update(min(sum(done for done, _ in tasks.values()), bar.length) - bar.pos)
