"""
What a process of the broker hears of settings that change while it runs.

The coordinator writes them into shared memory (mqcore/broker/settings/live.py). Every other process
looks between its turns, at least once a second: while nothing changes it compares one number.
"""
from __future__ import annotations

import logging
from functools import partial

from msgspec.structs import replace

from mqcore.broker.core import Core
from mqcore.broker.settings.changed import ChangedSettings
from mqcore.broker.settings.live import applied
from mqcore.broker.settings.model import Settings, SettingsError
from mqcore.layout import LEADERSHIP_FOLLOWS
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.segment import Segment
from mqcore.shm.text_board import SettingsBoard
from mqcore.wire.fastjson import JsonError

log = logging.getLogger("mqcore.settings")


def set_log_level(settings: Settings) -> None:
    """Log lines of this process from this level on."""
    logging.getLogger().setLevel(settings.log.level.upper())


def as_elected(settings: Settings, pen: LeadershipPen) -> Settings:
    """
    The settings of a broker that leads or follows as the word says now. Without elections the word
    says at most that a master was overtaken: it follows nothing, and takes no messages.
    """
    if settings.failover.enable:
        follows = not pen.leads
    else:
        follows = settings.follows or pen.role[0] == LEADERSHIP_FOLLOWS
    return settings if follows == settings.follows else replace(settings, follows=follows)


def turn_if_lost(core: Core, changes: ChangedSettings, pen: LeadershipPen) -> None:
    """In the coordinator: a master that leads no more refuses what a slave refuses."""
    settings = as_elected(core.settings, pen)
    if settings is not core.settings:
        changes.turn(partial(as_elected, pen=pen))
        core.settings = settings


class SaidNow:
    """For the coordinator: what the settings file said when it was read again."""

    def __init__(self, segment: Segment) -> None:
        self._board = SettingsBoard(segment, said=True)
        self._version = 0

    def look(self) -> bytes | None:
        """Its lines, if there are others than at the last look."""
        told = self._board.read() if self._board.version != self._version else None
        if told is None:                   # also while it is written: the next look is soon
            return None
        self._version, text = told
        return text


class SettingsNow:
    """
    settings: as they are now, for one process; `look` keeps them so.

    started: those that the run was started with.
    """

    def __init__(self, started: Settings, segment: Segment) -> None:
        self._started = started
        self._board = SettingsBoard(segment)
        self._pen = LeadershipPen(segment)
        self._version = 0
        self.settings = started
        self.look()

    def look(self) -> bool:
        """Whether they have changed since the last look."""
        changed = self._look_at_board()
        settings = as_elected(self.settings, self._pen)
        changed = changed or settings is not self.settings
        self.settings = settings
        return changed

    def _look_at_board(self) -> bool:
        if self._board.version == self._version:
            return False
        told = self._board.read()
        if told is None:                   # just being written: the next look is soon
            return False
        self._version, text = told
        try:
            self.settings = applied(self._started, text)
        except (SettingsError, JsonError, ValueError) as error:
            log.error("changed settings cannot be used, those before stay: %s", error)
            return False
        set_log_level(self.settings)
        return True
