"""
Paths that begin with ~, the home folder. A user id without HOME and without an entry in the user
database has none, as in containers that run with any user id.
"""
from __future__ import annotations

import os


class NoHomeError(ValueError):
    """The text names the path, and says what to do."""


def expanded(path: str) -> str:
    """The path from the root, with the home folder in place of ~. Raises NoHomeError."""
    found = os.path.expanduser(path)
    if path.startswith("~") and (found.startswith("~") or os.environ.get("HOME") == ""):
        raise NoHomeError(
            f"{path}: this user has no home folder: set HOME, or name a path without ~")
    return os.path.abspath(found)
