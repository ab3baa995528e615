"""Brokers whose shared memory has a name, as others than tests have them."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mqcore_process import named_memory


@pytest.fixture(scope="package", autouse=True)
def memory() -> Iterator[None]:
    with named_memory():
        yield
