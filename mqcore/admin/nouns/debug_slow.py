"""`mqcore debug slow`: where the time of slow requests went."""
from __future__ import annotations

import json
import sys

import click

from mqcore.admin.lines import say
from mqcore.admin.shell.durations import Duration
from mqcore.admin.shell.exits import Exit
from mqcore.admin.slow import SlowTrace, lines, the_run

SHOWN = 10
SECONDS_MAX = 3600.0


@click.command("slow")
@click.option("--over", "over_s", default="5ms", show_default=True,
              type=Duration(1e-5, SECONDS_MAX), help="Requests that take so long or longer.")
@click.option("--for", "for_s", default="30s", show_default=True,
              type=Duration(0.1, SECONDS_MAX), help="How long requests are watched.")
@click.option("--count", "shown", default=SHOWN, show_default=True, type=click.IntRange(1, 1000),
              help="How many of the slowest are shown.")
@click.option("--run", "name", metavar="NAME",
              help="Which broker, where several run: a name of `mqcore status`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, raw numbers.")
def slow_command(
    over_s: float, for_s: float, shown: int, name: str | None, as_json: bool,
) -> None:
    """Watch a broker of this machine, and show where the time of its slow requests went."""
    trace = SlowTrace(the_run(name), int(over_s * 1e6), shown)
    status = Exit.DONE
    try:
        trace.run(for_s)
    except KeyboardInterrupt:
        status = Exit.INTERRUPTED
    document = trace.document()
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        say(lines(document))
    sys.exit(status)
