"""`mqcore debug slow`: where the time of slow requests went."""
from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

import click

from mqcore.admin.lines import say
from mqcore.admin.shell.exits import Exit
from mqcore.admin.slow import SlowTrace, lines, the_run

SHOWN = 10
SECONDS_MAX = 3600.0


class Duration(click.ParamType):
    """A number and its unit: `500us`, `5ms`, `30s`, `2m`; seconds."""

    name = "duration"
    UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(us|ms|s|m)", value, re.ASCII)
        if found is not None:
            seconds = float(found[1]) * self.UNITS[found[2]]
            if self.least <= seconds <= self.most:
                return seconds
        self.fail(f"{value!r}: expected a number and us, ms, s or m, from {self.least:g} s to "
                  f"{self.most:g} s", param, ctx)


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
