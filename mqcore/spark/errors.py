"""Errors that a Spark user reads: one line that says what and how to continue."""
from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"     # Spark's workers look for it when they report an error

P = ParamSpec("P")
R = TypeVar("R")


class SparkSourceError(Exception):
    """What a source or sink cannot do as it was told; the message is one line."""


class OptionError(SparkSourceError, ValueError):
    """An option, or a schema, that cannot be: the message names it, and what was expected."""


class DataLoss(SparkSourceError):
    """Offsets that should have been read are not there, and `failOnDataLoss` is true."""


def one_line(function: Callable[P, R]) -> Callable[P, R]:
    """
    Let Spark report our own errors without a traceback: what is wrong is in the user's hands.

    Its worker processes look at the environment when they report; what they ran failed then, and
    they end.
    """
    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except SparkSourceError:
            os.environ[HIDE_TRACEBACK] = "1"
            raise
    return called
