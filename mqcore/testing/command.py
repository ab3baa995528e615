"""`mqcore testing up`: a broker for the tests of any language."""
from __future__ import annotations

import sys

import click


@click.group()
def testing_group() -> None:
    """A broker for the tests of an application."""


@testing_group.command("up")
@click.option("--json", "as_json", is_flag=True, help="Print its addresses as one line of JSON.")
@click.option("--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE",
              help="One setting; may be repeated.")
def testing_up(as_json: bool, overrides: tuple[str, ...]) -> None:
    """
    Run a broker with its name server on free ports, in a folder of its own.

    It prints name server, broker, store and process when clients can connect, and ends, leaving
    nothing behind, when its standard input ends, its parent is gone, or on SIGTERM.
    """
    from mqcore.testing.guard import guard_broker

    sys.exit(guard_broker(overrides, as_json=as_json))
