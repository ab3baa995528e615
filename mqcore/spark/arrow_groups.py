"""Rows of Arrow columns that have the same values."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def alike(columns: Sequence[Any]) -> tuple[list[tuple[Any, ...]], Any]:
    """The distinct tuples of values of some columns, and of each row the tuple's number."""
    codes = np.zeros(len(columns[0]), np.int64)
    values: list[list[Any]] = []
    for column in columns:
        encoded = column.dictionary_encode("encode")
        known = encoded.dictionary.to_pylist()
        values.append(known)
        codes = codes * max(len(known), 1) + encoded.indices.to_numpy(zero_copy_only=False)
    distinct, numbers = np.unique(codes, return_inverse=True)
    tuples = []
    for code in distinct.tolist():
        found = []
        for known in reversed(values):
            code, place = divmod(code, max(len(known), 1))
            found.append(known[place])
        tuples.append(tuple(reversed(found)))
    return tuples, numbers
