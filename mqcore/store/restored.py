"""
The file STORE/restored: a restore made this store, and no broker has led with it since.

What it holds ends where its backup ended. Others of its broker's name may have gone on, and its
table of epochs, which would tell, is not in a backup: who is to lead with it asks them first.
"""
from __future__ import annotations

from pathlib import Path
from typing import Final

from mqcore.store import files

NAME: Final = "restored"


def mark(store: Path) -> None:
    """Raises OSError."""
    files.write_new(store / NAME, b"")


def is_marked(store: Path) -> bool:
    return (store / NAME).exists()


def forget(store: Path) -> None:
    """It leads now, or knows whose log it has. Raises OSError."""
    if is_marked(store):
        files.unlink(store / NAME)
        files.sync_folder(store)
