"""Why there is no backup, or no store made from one; each text is one line for people."""
from __future__ import annotations


class BackupError(Exception):
    """What was asked cannot be done: nothing is left behind."""


class BadBackupError(BackupError):
    """The backup is not what was written: damaged, unfinished, incomplete, or made up."""


class BadStoreError(BackupError):
    """The store is damaged: a backup of it would promise what it does not hold."""
