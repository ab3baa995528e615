"""
Which store a member of an elected set has (leadership FO8), so that an empty disk is not taken for
it.
"""
from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from mqcore.store import files

IDENTITY_FILE: Final = "member"      # in the store
IDENTITY_LENGTH: Final = 32


class IdentityError(ValueError):
    """It cannot be read; the text says why."""


def identity(store: Path) -> str:
    """That of a store, made when it has none. Raises IdentityError, OSError."""
    path = store / IDENTITY_FILE
    try:
        text = files.read(path).decode("ascii", errors="replace").strip()
    except FileNotFoundError:
        text = secrets.token_hex(IDENTITY_LENGTH // 2)
        files.write_atomically(path, text.encode())
    if len(text) != IDENTITY_LENGTH or not text.isalnum():
        raise IdentityError(f"{path}: {text[:40]!r}: expected {IDENTITY_LENGTH} digits")
    return text
