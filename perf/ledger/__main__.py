"""
Counts what each path costs, and holds it against the table.

    python -m perf.ledger [--only PART,...] [--write]

Ends with 1 when a figure is more than 3 % above the table's, or 10 % where the kernel decides it
too.
--write: what was counted is the table from now on; the commit says why.
"""
from __future__ import annotations

import sys

import click

from perf.ledger.bench import alone
from perf.ledger.counts import counting
from perf.ledger.paths import PARTS, scratch
from perf.ledger.table import FILE, Table, excess, read, write


@click.command(help=__doc__)
@click.option("--only", default=",".join(PARTS), show_default=True)
@click.option("--write", "is_written", is_flag=True)
def main(only: str, is_written: bool) -> None:
    """See the module's text."""
    parts = only.split(",")
    if unknown := set(parts) - set(PARTS):
        raise click.UsageError(f"--only: {', '.join(sorted(unknown))}: expected {', '.join(PARTS)}")
    alone()
    counted: Table = {}
    with scratch() as folder, counting(folder) as numbers:
        for part in parts:
            counted |= PARTS[part](numbers, folder / part)
    for row, value in counted.items():
        click.echo(f"{' / '.join(row):60s} {value:12.2f}")
    if is_written:
        write((read() if FILE.exists() else {}) | counted)
        return
    agreed = read()
    complete = len(parts) == len(PARTS)
    found = excess(agreed if complete else {row: agreed[row] for row in counted if row in agreed},
                   counted)
    for line in found:
        click.echo(f"MORE {line}", err=True)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
