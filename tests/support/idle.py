"""
Processes that stand for other machines: they take only what is left of this one.

A broker and its clients have a machine's cores to themselves where its peers have their own; here
the peers share them. What a peer costs the broker stays as it is, what it costs itself does not
delay others. How far such peers get, tests and figures say beside what they measure.
"""
from __future__ import annotations

import os

LAST_NICE = 19


def take_what_is_left() -> None:
    """This process, and those that it makes, run when nobody else wants to."""
    os.nice(LAST_NICE)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
