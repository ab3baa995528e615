"""The metric that a figure of mqcore/figures.py becomes: its name, kind, meaning and unit."""
from __future__ import annotations

from mqcore.figures import Figure
from mqcore.http import text

UNITS = {"us": ("_us", "_seconds", 1e-6), "ms": ("_ms", "_seconds", 1e-3)}
# Figures under another name than their own, and those that Prometheus finds by itself (rates).
NAMED = {"refused": "sends_refused", "batches": "append_batches", "delivered": "delayed_delivered",
         "skipped": "delayed_skipped", "reputs": "delayed_refused"}
# Help of figures whose own text only makes sense below another figure's.
HELP = {"appended_bytes": "bytes of the messages that were stored",
        "open_to_others": "1: other hosts reach a port, and no account is asked for",
        "slave_lag_bytes": "bytes of the log that the slowest slave lacks",
        "slave_lag_ms": "since the slowest slave had the whole log",
        "slave_lag_messages": "messages that the slowest slave lacks, where the log has checksums",
        "refused_slaves": "connections of slaves that were closed for their bytes, or had no place",
        "unstored_bytes": "received bytes of the master's log that are not in the own log yet"}


def described(figure: Figure) -> tuple[str, str, str, float]:
    """Name, kind, meaning, and what a value is multiplied with to be in base units."""
    end, unit, factor = UNITS.get(figure.unit, ("", "", 1))
    name = NAMED.get(figure.name, figure.name).removesuffix(end) + unit
    meaning = HELP.get(figure.name, figure.help)
    return ("mqcore_" + name + ("" if figure.level else text.TOTAL),
            "gauge" if figure.level else "counter", meaning[0].upper() + meaning[1:] + ".", factor)
