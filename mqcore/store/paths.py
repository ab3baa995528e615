"""
The one way from a queue's name to its folder, and the one way to delete such a folder
(mqcore/names.pxd, O1 to O4). A path never leaves the folder that it is built under; what is
deleted was made here.
"""
from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from mqcore.layout import QUEUE_ID_END, TOPIC_LENGTH_MAX
from mqcore.store import files as disk

FOLDER_NAME_BYTES_MAX = TOPIC_LENGTH_MAX
RESTARTS_FILE = "queueRestarts.json"           # of config/: mqcore/broker/tables/queue_restarts.py
FILE_NAME = re.compile(r"[0-9]{20}")
_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,4}")
_FORBIDDEN = re.compile("[/\0\x01\x02]")       # the last two part properties


class PathError(ValueError):
    """A name would lead out of its folder, or can be no folder's; the text says which."""


def folder_name_trouble(name: str) -> str | None:
    """Why a queue's topic cannot be called so; None when it can (names O1)."""
    if name in ("", ".", ".."):
        return f"{name!r} is no name: expected one that a folder can have"
    found = _FORBIDDEN.search(name)
    if found is not None:
        return f"it has the character {found.group()!r}, which no folder's name can have"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it has half a surrogate pair: expected text that UTF-8 can hold"
    if size > FOLDER_NAME_BYTES_MAX:
        return f"it has {size} bytes: expected at most {FOLDER_NAME_BYTES_MAX}"
    return None


def queue_folder(root: Path, topic: str, queue_id: int) -> Path:
    """The folder of a queue below `root`. Raises PathError."""
    trouble = folder_name_trouble(topic)
    if trouble is not None:
        raise PathError(f"topic {topic[:160]!r}: {trouble}")
    if not 0 <= queue_id < QUEUE_ID_END:
        raise PathError(f"queue {queue_id} of topic {topic[:160]!r}: expected 0 to "
                        f"{QUEUE_ID_END - 1}")
    return root / topic / str(queue_id)


def queue_folders(root: Path) -> Iterator[tuple[str, int, Path]]:
    """(topic, queue id, folder) of all queues below `root`, as `queue_names`. Raises OSError."""
    for topic, queue_id in queue_names(root):
        yield topic, queue_id, root / topic / str(queue_id)


def queue_names(root: Path) -> Iterator[tuple[str, int]]:
    """
    (topic, queue id) of all queues that have a folder below `root`; whatever is called otherwise is
    passed over. Raises OSError.
    """
    if not root.is_dir():
        return
    for topic in os.scandir(root):
        if folder_name_trouble(topic.name) is not None or not topic.is_dir():
            continue
        for queue in os.scandir(topic.path):
            if (_QUEUE_ID.fullmatch(queue.name) and int(queue.name) < QUEUE_ID_END
                    and queue.is_dir()):
                yield topic.name, int(queue.name)


def remove_queue(root: Path, topic: str, queue_id: int, file_bytes: int | None) -> list[Path]:
    """
    Delete the files of a queue below `root`, and its folder if nothing else is in it; the topic's
    folder stays, as in 4.9.8.

    file_bytes: the size of a whole file; what is longer, or begins elsewhere, is not the queue's.
    None: any size. Returns what is left because it is not the queue's. Raises PathError, OSError.
    """
    folder = queue_folder(root, topic, queue_id)
    for part in (folder.parent, folder):
        if part.is_symlink():
            return [part]
    if not folder.is_dir():
        return []
    foreign = []
    for entry in os.scandir(folder):
        if _is_queue_file(entry, file_bytes):
            disk.unlink(Path(entry.path))
        else:
            foreign.append(Path(entry.path))
    if not foreign:
        disk.calls.remove_folder(folder)
    disk.sync_folder(folder.parent)
    return sorted(foreign)


def _is_queue_file(entry: os.DirEntry[str], file_bytes: int | None) -> bool:
    if FILE_NAME.fullmatch(entry.name) is None or entry.is_symlink():
        return False
    found = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        return False
    return file_bytes is None or (found.st_size <= file_bytes and int(entry.name) % file_bytes == 0)
