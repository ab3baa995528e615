"""What a start that finds a damaged store says."""
from __future__ import annotations


class DamagedStoreError(RuntimeError):
    """The store cannot be opened as it is; the text names file, position and what was found."""


def what_to_do(store: str) -> str:
    """The sentence that follows damage: the two commands for a store at rest."""
    return (f"`mqcore verify {store}` shows all of it, `mqcore repair --dry-run {store}` what can "
            "be done about it.")
