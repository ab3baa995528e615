"""
How long the slowest of a thousand messages take from end to end, beside the least that is possible:
two C programs that do nothing but pass a message on (passing.c).

    python -m perf.passing [--rounds N] [--seconds S] [--rate N]

The two take turns (A B A B ...). p99.9 of one run is made of few messages: medians of the rounds
are printed, and their ratio.
"""
from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

import click

from perf.compare import e2e_case
from perf.contenders import BARE_FLAGS, Contender, ContenderError, run_mqcore

SOURCE = Path(__file__).with_name("passing.c")
SIZE = 128
QUANTILES = ("p50_us", "p99_us", "p99.9_us")


def passing_program(folder: Path) -> Path:
    """passing.c, compiled into `folder`. Raises ContenderError."""
    compiler, program = shutil.which("cc"), folder / SOURCE.stem
    if compiler is None:
        raise ContenderError("passing.c: expected a C compiler, cc")
    made = subprocess.run([compiler, *BARE_FLAGS, "-o", str(program), str(SOURCE)],
                          capture_output=True, text=True)
    if made.returncode:
        raise ContenderError(f"passing.c cannot be compiled: {made.stderr}")
    return program


def passed(program: Path, rate: int, seconds: int, size: int = SIZE) -> dict[str, float]:
    """The figures that passing.c prints. Raises ContenderError."""
    done = subprocess.run([str(program), str(rate), str(seconds), str(size)], capture_output=True,
                          text=True)
    if done.returncode:
        raise ContenderError(done.stderr.strip())
    found: dict[str, float] = json.loads(done.stdout)
    return found


@click.command(help=__doc__)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 100))
@click.option("--seconds", default=5, show_default=True, type=click.IntRange(1, 600))
@click.option("--rate", default=10_000, show_default=True, type=click.IntRange(1, 1_000_000))
def main(rounds: int, seconds: int, rate: int) -> None:
    """See the module's text."""
    least: list[dict[str, float]] = []
    ours: list[dict[str, float]] = []
    contender = Contender("mqcore", run_mqcore)
    with tempfile.TemporaryDirectory(prefix="mqcore-perf-passing-") as scratch:
        program = passing_program(Path(scratch))
        with run_mqcore(Path(scratch, "broker"), "async") as running:
            for _ in range(rounds):
                least.append(passed(program, rate, seconds))
                ours.append(e2e_case(rate)(running, contender, seconds).latency_us)
    for name in QUANTILES:
        c = statistics.median(each[name] for each in least)
        broker = statistics.median(each[name] for each in ours)
        click.echo(f"{name:9s} two C programs {c:>9,.0f}  broker {broker:>9,.0f}  "
                   f"{broker / c:.2f} times")


if __name__ == "__main__":
    main()
