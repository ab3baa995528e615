"""
Queues that a slave has removed by itself: up to where in the log their records belong to an earlier
life. A master's removals are in the log (mqcore/store/queue/lives.pxd).

mqcore/shm/retention.pyx says how a queue is removed. Its records stay in the log, and a recovery
that reads them again must not bring the queue back; so the position at which the present life began
is kept in `config/queueRestarts.json` until the log no longer reaches below it. A stock broker does
not know the file: it revives a removed queue as it does its own (store.md 3.7).
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqcore.broker.tables import config_file
from mqcore.store.paths import QUEUE_ID_END, folder_name_trouble, queue_folder, remove_queue
from mqcore.store.queue.trim import first_position

# of the queue table: topic, queue id, position in bytes
SetRestart = Callable[[str, int, int], None]


class RestartFile:
    """
    The positions at which the queues' present lives began. For the writer's process.

    path: the file; queue_folder: the consume queues, to finish what a power cut left half done.
    """

    def __init__(self, path: Path, queue_folder: Path) -> None:
        self._path = path
        self._queue_folder = queue_folder
        self._restarts: dict[tuple[str, int], int] = {}

    def load(self) -> None:
        """Read the file. Raises config_file.ConfigFileError when it is unusable, and OSError."""
        table = (config_file.load(self._path) or {}).get("restarts")
        parsed = config_file.entries(self._path, table, _parsed)
        self._restarts = {name: position for name, position in parsed.values()
                          if _can_be(*name)}

    def apply(self, set_restart: SetRestart) -> None:
        """
        Before a run's first recovery: tell the queue table, and delete files of a life that had
        ended. Raises OSError.
        """
        for (topic, queue_id), position in self._restarts.items():
            set_restart(topic, queue_id, position)
            first = first_position(queue_folder(self._queue_folder, topic, queue_id))
            if first is not None and first < position:
                remove_queue(self._queue_folder, topic, queue_id, None)

    def recovered(self, set_restart: SetRestart, first: int, end: int) -> None:
        """
        After recovery found the log from `first` to `end`, bytes: a life that began behind the end
        (a power cut took the records before it) begins at the end.
        """
        kept = {name: min(position, end) for name, position in self._restarts.items()
                if position > first}
        if kept == self._restarts:
            return
        for (topic, queue_id), position in kept.items():
            set_restart(topic, queue_id, position)
        self._restarts = kept
        self._save()

    def add(self, queues: list[tuple[str, int]], position: int, first: int) -> None:
        """Before the queues' lives end at `position`; what the log no longer holds is left out."""
        kept = {name: at for name, at in self._restarts.items() if at > first}
        self._restarts = {**kept, **dict.fromkeys(queues, position)}
        self._save()

    def _save(self) -> None:
        config_file.save(self._path, {"restarts": {
            f"{topic}@{queue_id}": position
            for (topic, queue_id), position in self._restarts.items()
        }})


def _can_be(topic: str, queue_id: int) -> bool:
    """Whether there can be such a queue; earlier versions took any."""
    return folder_name_trouble(topic) is None and 0 <= queue_id < QUEUE_ID_END


def _parsed(name: str, value: Any) -> tuple[tuple[str, int], int]:
    topic, mark, queue_id = name.rpartition("@")
    if not topic or not mark or not isinstance(value, int) or value < 0:
        raise ValueError("expected topic@queueId and a log position")
    return (topic, int(queue_id)), value
