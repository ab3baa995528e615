"""The table: what each path cost when it was last agreed on, and what is too much beside it."""
from __future__ import annotations

from pathlib import Path

Row = tuple[str, str, str]             # path, process, figure
Table = dict[Row, float]

FILE = Path(__file__).with_name("table.tsv")
HEAD = ("path", "process", "figure", "value")
OWN, KERNELS = 1.03, 1.10              # what is ours; what the kernel decides too
CLIENT = "client"                     # what it copies depends on how many messages an answer brings
TOLERANCE = {"instructions": OWN,
             "copied": OWN, "allocations": OWN, "modules": 1.0, "clocks": KERNELS, "calls": KERNELS,
             "switches": KERNELS, "pages": KERNELS, "private": KERNELS}
# of a figure that is nearly 0, or whose unit is small: so much more says nothing
# Whether a process rests or has to be woken is timing: a wake-up takes 200 instructions.
SLACK = {"instructions": 250.0,
         "copied": 8.0, "allocations": 0.05, "modules": 0.0, "clocks": 0.25, "calls": 0.25,
         "switches": 0.15, "pages": 0.1, "private": 1.0}
# ... of a second in which a timer may be due once more or not
IDLE = "idle second"
IDLE_SLACK = {"clocks": 10.0, "calls": 4.0, "switches": 2.0, "allocations": 2.0}


def read(file: Path = FILE) -> Table:
    """Raises ValueError for a line that is none of the table's."""
    table: Table = {}
    head, *lines = file.read_text(encoding="utf-8").splitlines()
    if tuple(head.split("\t")) != HEAD:
        raise ValueError(f"{file}: expected the columns {', '.join(HEAD)}")
    for number, line in enumerate(lines, 2):
        path, process, figure, value = line.split("\t")
        if figure not in TOLERANCE or (path, process, figure) in table:
            raise ValueError(f"{file}:{number}: {figure}: no figure, or one that is there twice")
        table[path, process, figure] = float(value)
    return table


def write(table: Table, file: Path = FILE) -> None:
    """Rows in their order, values in the form that is read again."""
    lines = ["\t".join(HEAD), *("\t".join((*row, f"{value:.2f}")) for row, value in table.items())]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def limit(row: Row, agreed: float) -> float:
    """The largest value of a row that is not more than was agreed on."""
    of_timing = row[1] == CLIENT and row[2] in ("copied", "allocations")
    slack = IDLE_SLACK if row[0] == IDLE else SLACK
    return agreed * (KERNELS if of_timing else TOLERANCE[row[2]]) + slack[row[2]]


def excess(agreed: Table, counted: Table) -> list[str]:
    """A line for each figure that costs more, or that the other side lacks."""
    found = [f"{' / '.join(row)}: {counted[row]:.2f}, agreed on {agreed[row]:.2f}"
             for row in agreed if row in counted and counted[row] > limit(row, agreed[row])]
    found += [f"{' / '.join(row)}: is not in the table" for row in _missing(counted, agreed)]
    found += [f"{' / '.join(row)}: was not counted" for row in _missing(agreed, counted)]
    return found


def _missing(table: Table, other: Table) -> list[Row]:
    return [row for row in table if row not in other]
