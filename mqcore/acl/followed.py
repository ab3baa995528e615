"""
Rules that follow their files: looked at once a second, read anew after a change. What cannot be
used changes nothing; one line says what was expected.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from mqcore.acl.documents import AclFileError
from mqcore.acl.folder import AclFolder, FolderStamp
from mqcore.acl.kept import KeptFiles
from mqcore.acl.rules import Rules

LOOK_MS = 1_000                    # how often files are looked at

_log = logging.getLogger("mqcore.access")


class NotTaken(ValueError):
    """Rules cannot be in force, though their files are right; the text says why."""


class FollowedRules:
    """
    home   the folder of the files; stock_permissions: see `needs`
    take   called with rules that are to be in force from then on; raises NotTaken
    kept   where files whose rules are in force are kept for a successor; None: nowhere
    keeps  whether this process puts them there
    """

    def __init__(self, home: Path, take: Callable[[Rules], None], *,
                 stock_permissions: bool = False, kept: KeptFiles | None = None,
                 keeps: bool = True) -> None:
        self.folder = AclFolder(home)
        self._stock = stock_permissions
        self._take = take
        self._kept = kept
        self._keeps = keeps
        self._stamp: FolderStamp = ()
        self._next_look_ms = 0
        self._trouble = ""

    def load(self) -> None:
        """
        For the start of a process: what the files say; when they cannot be used, what was kept.
        Raises AclFileError, NotTaken, OSError when there is nothing.
        """
        try:
            self._stamp = self.folder.stamp()
            rules = self.read()
            self.take(rules)
        except (AclFileError, NotTaken, OSError) as error:
            kept = self._kept.get() if self._kept is not None else None
            if kept is None:
                raise
            self._take(Rules(kept, stock_permissions=self._stock))
            self.said(error)
            return
        if not rules.accounts and not rules.white:
            _log.warning("no account in %s: every request is refused; mqcore acl init writes a "
                         "first file", self.folder.home)

    def read(self) -> Rules:
        """What the files say now. Raises AclFileError, OSError."""
        return self.folder.read(stock_permissions=self._stock)

    def take(self, rules: Rules) -> None:
        """From now on. Raises NotTaken, and those before stay."""
        self._take(rules)
        self._trouble = ""
        if self._kept is None or not self._keeps:
            return
        try:
            self._kept.put(rules.files)
        except OSError as error:
            _log.error("access files cannot be kept for processes that start anew: %s", error)

    def has_changed(self, now_ms: int) -> bool:
        """Whether a file has changed since the last look: `found` is to be told what it says."""
        if now_ms < self._next_look_ms <= now_ms + LOOK_MS:
            return False
        self._next_look_ms = now_ms + LOOK_MS
        try:
            stamp = self.folder.stamp()
        except (OSError, AclFileError) as error:
            self.said(error)
            return False
        changed = stamp != self._stamp
        self._stamp = stamp
        return changed

    def found(self, rules: Rules | AclFileError | OSError) -> None:
        """What a reading after a change has given."""
        if not isinstance(rules, Rules):
            self.said(rules)
            return
        try:
            self.take(rules)
        except NotTaken as error:
            self.said(error)
            return
        _log.info("access rules were read again: %d accounts in %d files", len(rules.accounts),
                  len(rules.files))

    def said(self, error: Exception) -> None:
        """Once for each trouble: the rules before it stay in force."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.error("access rules stay as they were: %s", error)
