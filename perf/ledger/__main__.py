"""
Counts what each path costs, and holds it against the table.

    python -m perf.ledger [--only PART,...] [--write]

Ends with 1 when a figure is more than 3 % above the table's, or 10 % where the kernel decides it
too.
--write: what was counted is the table from now on; the commit says why.
Instructions are left out where there is no valgrind; in CI that is an error.
"""
from __future__ import annotations

import sys

import click

from perf.ledger.bench import alone
from perf.ledger.counts import counting
from perf.ledger.instructions import FIGURE, instructions, lacking
from perf.ledger.paths import PATHS, scratch
from perf.ledger.table import FILE, Table, excess, read, write
from tests.support.ci import in_ci

PARTS = {**PATHS, FIGURE: instructions}


@click.command(help=__doc__)
@click.option("--only", default=",".join(PARTS), show_default=True)
@click.option("--write", "is_written", is_flag=True)
def main(only: str, is_written: bool) -> None:
    """See the module's text."""
    agreed, parts = read() if FILE.exists() else {}, only.split(",")
    if unknown := set(parts) - set(PARTS):
        raise click.UsageError(f"--only: {', '.join(sorted(unknown))}: expected {', '.join(PARTS)}")
    is_complete = len(parts) == len(PARTS)
    if FIGURE in parts and (why := lacking()):
        click.echo(f"SKIPPED {FIGURE}: {why}", err=True)
        if in_ci():
            sys.exit(1)
        parts.remove(FIGURE)
        agreed = {row: value for row, value in agreed.items() if row[2] != FIGURE}
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
    if not is_complete:
        agreed = {row: agreed[row] for row in counted if row in agreed}
    found = excess(agreed, counted)
    for line in found:
        click.echo(f"MORE {line}", err=True)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
