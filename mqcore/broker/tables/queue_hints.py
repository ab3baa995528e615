"""What the store's config files say of its queues, for a start that looks for missing ones."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from mqcore.broker.tables import config_file
from mqcore.store.recovery.queue_ends import Hints


def _offset_table(config: Path) -> Any:
    """Offsets of plain groups; those of a broker with light queues are in a file of their own."""
    for name in ("lmqConsumerOffset.json", "consumerOffset.json"):
        found = config_file.load(config / name)
        if found is not None:
            return found.get("offsetTable")
    return None


def read(config: Path) -> Hints:
    """Hints from topics.json and consumerOffset.json; a file that cannot be used gives none."""
    topics: set[str] | None = None
    offsets: dict[tuple[str, int], int] = {}
    try:
        found = config_file.load(config / "topics.json") or {}
        table = found.get("topicConfigTable")
        topics = {str(name) for name in table} if isinstance(table, dict) else None
        groups = _offset_table(config)
    except (config_file.ConfigFileError, OSError):       # whoever owns the file says what is wrong
        return Hints(topics, offsets)
    for name, queues in (groups if isinstance(groups, dict) else {}).items():
        topic = str(name).rpartition("@")[0]
        for queue, offset in (queues if isinstance(queues, dict) else {}).items():
            if str(queue).isdecimal() and isinstance(offset, int):
                key = (topic, int(queue))
                offsets[key] = max(offset, offsets.get(key, 0))
    return Hints(topics, offsets)
