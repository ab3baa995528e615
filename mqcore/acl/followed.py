"""
Rules that follow their files: looked at once a second, read anew when two looks have found the same
change, so that nobody takes a half of what is being written. What cannot be used changes nothing;
one line says what was expected.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from mqcore.acl.folder import AclFolder, FolderStamp
from mqcore.acl.kept import KeptFiles
from mqcore.acl.nodes import AclFileError
from mqcore.acl.rules import AclFile, Rules

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
        self._stamp: FolderStamp | None = None       # of what was read; None: to be read again
        self._seen: FolderStamp | None = None        # at the last look
        self._files: tuple[AclFile, ...] = ()        # in force
        self._next_look_ms = 0
        self._trouble = ""

    def load(self) -> None:
        """
        For the start of a process: what the files say; when they cannot be used, what was kept.
        Raises AclFileError, NotTaken, OSError when there is nothing.
        """
        try:
            self._stamp = self._seen = self.folder.stamp()
            rules = self.read()
            if not all(file.document for file in rules.files):
                check_emptied(rules.files, self._before() or ())
            self.take(rules)
        except (AclFileError, NotTaken, OSError) as error:
            kept = self._before()
            if kept is None:
                raise
            self._files = tuple(kept)
            self._take(Rules(kept, stock_permissions=self._stock))
            self._cannot(error)
            return
        if not rules.accounts and not rules.white:
            _log.warning("no account in %s: every request is refused; mqcore acl init writes a "
                         "first file", self.folder.home)

    def _before(self) -> list[AclFile] | None:
        """What a predecessor had; None: there was none."""
        return self._kept.get() if self._kept is not None else None

    def read(self) -> Rules:
        """What the files say now. Raises AclFileError, OSError."""
        return self.folder.read(stock_permissions=self._stock)

    def read_to_change(self) -> Rules:
        """
        The same, for who writes them; raises AclFileError for what somebody else has emptied, or
        may still be writing.
        """
        stamp = self.folder.stamp()
        rules = self.read()
        check_emptied(rules.files, self._files)
        in_force = {file.path: file.document for file in self._files}
        if self.folder.stamp() != stamp or (
                stamp != self._stamp
                and {file.path: file.document for file in rules.files} != in_force):
            raise AclFileError(str(self.folder.home), 0, "its files have changed and are not "
                               "in force yet: expected this change again in some seconds")
        return rules

    def take(self, rules: Rules) -> None:
        """From now on. Raises NotTaken, and those before stay."""
        self._take(rules)
        self._files = rules.files
        self._trouble = ""
        if self._kept is None or not self._keeps:
            return
        try:
            self._kept.put(rules.files)
        except OSError as error:
            _log.error("access files cannot be kept for processes that start anew: %s", error)

    def has_changed(self, now_ms: int) -> bool:
        """Whether a file has changed and is whole: `found` is to be told what it says."""
        if now_ms < self._next_look_ms <= now_ms + LOOK_MS:
            return False
        self._next_look_ms = now_ms + LOOK_MS
        try:
            stamp = self.folder.stamp()
        except (OSError, AclFileError) as error:
            self.said(error)
            return False
        before, self._seen = self._seen, stamp
        if stamp == self._stamp or stamp != before:
            return False
        self._stamp = stamp
        return True

    def found(self, rules: Rules | AclFileError | OSError) -> None:
        """What a reading after a change has given."""
        if not isinstance(rules, Rules):
            self._cannot(rules)
            return
        try:
            check_emptied(rules.files, self._files)
            self.take(rules)
        except (AclFileError, NotTaken) as error:
            self._cannot(error)
            return
        _log.info("access rules were read again: %d accounts in %d files", len(rules.accounts),
                  len(rules.files))

    def _cannot(self, error: Exception) -> None:
        """What the disk or the system refused may be there at the next look."""
        if isinstance(error, OSError):
            self._stamp = None
        self.said(error)

    def said(self, error: Exception) -> None:
        """Once for each trouble: the rules before it stay in force."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.error("access rules stay unchanged: %s", error)


def check_emptied(files: Iterable[AclFile], before: Iterable[AclFile]) -> None:
    """
    Raises AclFileError for a file without a word that had accounts: whoever meant that takes the
    file away, or leaves `accounts: []` in it.
    """
    had = {file.path: len(file.accounts) for file in before}
    for file in files:
        if not file.document and had.get(file.path):
            raise AclFileError(file.path, 0, f"nothing in it, and there were {had[file.path]} "
                                             "accounts: expected accounts, or accounts: []")
