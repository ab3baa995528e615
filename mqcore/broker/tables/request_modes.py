"""
How consumers whose queues the broker assigns get messages: by pulls, or by POP.

pop.md 5 (RocketMQ 5.3.3: MessageRequestModeManager). State in memory, persisted as
config/messageRequestMode.json, which 4.9 passes over.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqcore.broker.tables import config_file

MODES_MAX = 65_536                     # pairs of topic and group
MEMBER = "messageRequestModeMap"
PULL, POP = "PULL", "POP"


class ModesFull(Exception):
    """There are MODES_MAX pairs already."""


@dataclass(frozen=True, slots=True)
class RequestMode:
    """share_count: POP members that share one member's queues; 0 and less: all share all."""

    mode: str = PULL
    share_count: int = 0


class RequestModes:
    """By topic and group; a change is undone when its file cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._modes: dict[tuple[str, str], RequestMode] = {}
        self._saved: dict[tuple[str, str], RequestMode] = {}

    def load(self) -> None:
        """Raises ConfigFileError; a pair that no broker can have written is passed over."""
        stored = config_file.load(self._path) or {}
        topics = stored.get(MEMBER)
        for topic, groups in topics.items() if isinstance(topics, dict) else ():
            for group, value in groups.items() if isinstance(groups, dict) else ():
                if isinstance(value, dict) and value.get("mode") in (PULL, POP):
                    share = value.get("popShareQueueNum")
                    self._modes[str(topic), str(group)] = RequestMode(
                        value["mode"], share if isinstance(share, int) else 0)
        self._saved = dict(self._modes)

    def get(self, topic: str, group: str) -> RequestMode:
        """PULL where nothing was set."""
        return self._modes.get((topic, group), RequestMode())

    def put(self, topic: str, group: str, mode: RequestMode) -> None:
        """Raises ModesFull."""
        if (topic, group) not in self._modes and len(self._modes) >= MODES_MAX:
            raise ModesFull(f"{MODES_MAX} pairs of topics and groups have a mode already")
        self._modes[topic, group] = mode

    def begin(self) -> Iterator[None]:
        """The steps that write the file; they raise OSError."""
        return self._steps(dict(self._modes))

    def _steps(self, modes: dict[tuple[str, str], RequestMode]) -> Iterator[None]:
        table: dict[str, dict[str, Any]] = {}
        for (topic, group), one in modes.items():
            table.setdefault(topic, {})[group] = {
                "consumerGroup": group, "mode": one.mode,
                "popShareQueueNum": one.share_count, "topic": topic}
        yield
        try:
            config_file.save_bytes(self._path, config_file.pretty({MEMBER: table}).encode())
        except OSError:
            self._modes = dict(self._saved)
            raise
        self._saved = modes
