"""The numbers that documents give are those of the code."""
from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
WORDS = ("no", "one", "two", "three", "four", "five")
NET, STORE = "mqcore/net/transport", "mqcore/store"
SERVING = "mqcore/net/serving"


def plain(value: float) -> str:
    return f"{value:,.0f}"


def size(value: float) -> str:
    """262,144: 256 KiB."""
    unit, name = (1 << 20, "MiB") if value >= 1 << 20 else (1 << 10, "KiB")
    assert value % unit == 0
    return f"{value / unit:,.0f} {name}"


def word(value: float) -> str:
    return WORDS[round(value)]


def seconds(value: float) -> str:
    """Of milliseconds."""
    return f"{value / 1000:g} s"


def ms(value: float) -> str:
    """Of seconds."""
    return f"{value * 1000:g} ms"


class Fact(NamedTuple):
    """A document says `text`, with the number of a constant in place of {}."""

    document: str
    text: str
    file: str
    constant: str
    shown: Callable[[float], str] = plain


ARCHITECTURE, FAIRNESS = "docs/architecture.md", "docs/fairness.md"
FACTS = (
    Fact(ARCHITECTURE, "reads up to {} from the socket", f"{NET}/transport.pxd", "READ_BYTES",
         size),
    Fact(ARCHITECTURE, "takes up to {} from each ring", f"{STORE}/log/append.pyx",
         "RING_BYTES_MAX", size),
    Fact(ARCHITECTURE, "and up to {} in a turn", f"{STORE}/log/appender.pxd", "TURN_BYTES_MAX",
         size),
    Fact(ARCHITECTURE, "those more than {} behind the log's end", f"{SERVING}/cold.pxd",
         "COLD_BEHIND_BYTES", size),
    Fact(ARCHITECTURE, "gets a slice of {};", f"{NET}/work.pyx", "SLICE_WORK"),
    Fact(ARCHITECTURE, "{} units in all a turn", f"{NET}/work.pxd", "DEFERRED_WORK"),
    Fact(ARCHITECTURE, "ends after {} units", f"{SERVING}/scan.pyx", "LOOK_MOST_WORK"),
    Fact(ARCHITECTURE, "as after {} entries", f"{SERVING}/scan.pyx", "SCAN_LEAST"),
    Fact(ARCHITECTURE, "are what a crowd costs: {} units a turn", f"{NET}/work.pxd", "CROWD_WORK"),
    Fact(ARCHITECTURE, "passes take {} units of a turn", f"{SERVING}/held_places.pxd", "HELD_WORK"),
    Fact(ARCHITECTURE, "one of each line in turn, {} at most", f"{NET}/shake_thread.pxd",
         "SHAKE_DEPTH"),
    Fact(ARCHITECTURE, "(`SCHED_BATCH`, {} nicer)", f"{NET}/shake_thread.pxd", "SHAKE_NICE"),
    Fact(ARCHITECTURE, "once it has {} of unread answers", f"{NET}/memory.pyx", "OUT_SHORT_BYTES",
         size),
    Fact(ARCHITECTURE, "in place of {} (memory N13)", f"{NET}/transport.pxd", "OUT_HIGH_BYTES",
         size),
    Fact(ARCHITECTURE, "go back to the system {} a turn", f"{NET}/returned.pxd", "RETURN_BYTES",
         size),
    Fact(ARCHITECTURE, "Up to {} deliveries are under way", f"{STORE}/schedule/levels.pxd",
         "FLIGHT_MAX"),
    Fact(ARCHITECTURE, "is tried again after {} ms", f"{STORE}/schedule/delivery.pyx",
         "BACKOFF_MS"),
    Fact(ARCHITECTURE, "With {} unread it is dropped", f"{SERVING}/answers.pyx", "OUT_OFFER_BYTES",
         size),
    Fact(ARCHITECTURE, "if none of {} reads", "mqcore/broker/requests/check_sender.py",
         "TRIES_MAX", word),
    Fact(ARCHITECTURE, "at most {} copies in a millisecond",
         f"{STORE}/transactions/check_round.pxd", "PACE_PER_MS"),
    Fact(ARCHITECTURE, "a million undecided messages takes {} s",
         f"{STORE}/transactions/check_round.pxd", "PACE_PER_MS", lambda pace: plain(1000 / pace)),
    Fact(ARCHITECTURE, "{} at once, then the log refuses", f"{STORE}/log/failed_write.pyx",
         "WRITE_TRIES", lambda tries: f"{word(tries)} times"),
    Fact(ARCHITECTURE, "which is tried {} times a second", f"{STORE}/log/failed_write.pyx",
         "PROBE_INTERVAL_MS", lambda interval_ms: word(1000 / interval_ms)),
    Fact(ARCHITECTURE, "frame above {}, whatever its code", f"{SERVING}/forward.pxd",
         "FORWARD_BYTES_MAX", size),
    Fact(ARCHITECTURE, "in parts of {}, of which", f"{SERVING}/forward.pyx", "LONG_PART_BYTES",
         size),
    Fact(ARCHITECTURE, "is told SYSTEM_BUSY: after {},", f"{SERVING}/parked.pyx", "PARKED_LIFE_MS",
         seconds),
    Fact(ARCHITECTURE, "or {} after the start of the next coordinator", f"{SERVING}/asked.pxd",
         "ORPHAN_LIFE_MS", seconds),
    Fact(ARCHITECTURE, "the coordinator has at most {} frames", f"{SERVING}/forward.pyx",
         "FORWARDS_MAX"),
    Fact(ARCHITECTURE, "One client gets {} of questions", "mqcore/broker/tables/client_calls.py",
         "SENT_BYTES_MAX", size),
    Fact(ARCHITECTURE, "its slices of {}.", "mqcore/turns.py", "SLICE_S", ms),
    Fact(FAIRNESS, "a connection: {}, and", f"{NET}/work.pyx", "SLICE_WORK"),
    Fact(FAIRNESS, "and {} in its next turns", f"{NET}/work.pxd", "DEFERRED_SLICE_WORK"),
    Fact(FAIRNESS, "together: {} a turn", f"{NET}/work.pxd", "CROWD_WORK"),
    Fact(FAIRNESS, "a pull: {},", f"{SERVING}/scan.pyx", "LOOK_MOST_WORK"),
    Fact(FAIRNESS, "{} in a long turn", f"{SERVING}/scan.pyx", "LOOK_LEAST_WORK"),
    Fact(FAIRNESS, "what is left of {} a turn", f"{SERVING}/held_places.pxd", "HELD_WORK"),
    Fact(FAIRNESS, "an eighth, at least {}", f"{SERVING}/held.pyx", "SHARE_LEAST"),
    Fact(FAIRNESS, "all: {}; the rest waits", f"{NET}/shake_thread.pxd", "SHAKE_DEPTH"),
    Fact(FAIRNESS, "from {} on when memory is short", f"{NET}/memory.pyx", "OUT_SHORT_BYTES", size),
    Fact(FAIRNESS, "a connection: {} frames", f"{SERVING}/forward.pyx", "FORWARDS_MAX"),
    Fact(FAIRNESS, "for {} at most", "mqcore/turns.py", "EXPRESS_STRETCH_S", ms),
    Fact(FAIRNESS, "{} slices", "mqcore/turns.py", "SLICE_S", ms),
)


def number(file: str, constant: str) -> float:
    """A constant of a module, native or not; it is made of numbers only."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found = re.search(rf"^ *{constant} = ([\d_.<*e /+-]+?) *(?:#.*)?$", text, re.M)
    assert found is not None, f"{file}: no {constant}"
    return value(ast.parse(found[1], mode="eval").body)


def value(node: ast.expr) -> float:
    if isinstance(node, ast.BinOp):
        left, right = value(node.left), value(node.right)
        if isinstance(node.op, ast.LShift):
            return int(left) << int(right)
        assert isinstance(node.op, ast.Mult)
        return left * right
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int | float)
    return node.value


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact.constant}-{fact.text[:30]}")
def test_a_document_says_the_number_of_the_code(fact: Fact) -> None:
    said = " ".join((ROOT / fact.document).read_text(encoding="utf-8").split())
    expected = fact.text.format(fact.shown(number(fact.file, fact.constant)))

    assert expected in said


def test_a_constant_is_read_as_the_compiler_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "some.pxd").write_text(
        "cdef enum:\n    ROOM = 16 << 10     # bytes\n    PACE = 1_500\nPAUSE_S = 0.25\n")
    monkeypatch.setattr("tests.admin.test_numbers.ROOT", tmp_path)

    found = [number("some.pxd", name) for name in ("ROOM", "PACE", "PAUSE_S")]
    assert found == [16_384, 1_500, 0.25]
