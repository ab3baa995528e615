"""Errors that a Spark user reads: one line that says what and how to go on."""
from __future__ import annotations


class SparkSourceError(Exception):
    """What a source or sink cannot do as it was told; the message is one line."""


class OptionError(SparkSourceError, ValueError):
    """An option, or a schema, that cannot be: the message names it, and what was expected."""


class DataLoss(SparkSourceError):
    """Offsets that should have been read are not there, and `failOnDataLoss` is true."""
