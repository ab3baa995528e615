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


def renew(store: Path) -> str:
    """Another one: the store is no member of the set any more. Raises OSError."""
    text = secrets.token_hex(IDENTITY_LENGTH // 2)
    files.write_atomically(store / IDENTITY_FILE, text.encode())
    return text


def identity(store: Path) -> str:
    """That of a store, made when it has none. Raises IdentityError, OSError."""
    path = store / IDENTITY_FILE
    try:
        text = files.read(path).decode("ascii", errors="replace").strip()
    except FileNotFoundError:
        text = renew(store)
    if len(text) != IDENTITY_LENGTH or not text.isalnum():
        raise IdentityError(f"{path}: {text[:40]!r}: expected {IDENTITY_LENGTH} digits")
    return text
