"""What a test needs and this machine lacks: elsewhere a reason to skip, in CI a failure."""
from __future__ import annotations

import os
from typing import NoReturn

import pytest


def in_ci() -> bool:
    """Whether a missing tool is a failure (CI=true) instead of a skip."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def unavailable(reason: str) -> NoReturn:
    """Skip the calling test because `reason`; in CI, fail it."""
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
