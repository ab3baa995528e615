"""What a start that finds a damaged store says."""
from __future__ import annotations

import os
import shlex
from pathlib import Path

from mqcore.layout import CQ_ENTRY_SIZE
from mqcore.store.files import opened
from mqcore.store.log.folders import LOG, LogFolders
from mqcore.store.paths import FILE_NAME, queue_folders
from mqcore.store.recovery.queue_ends import QueueEnds


class DamagedStoreError(RuntimeError):
    """The store cannot be opened as it is; the text names file, position and what was found."""


def what_to_do(log: LogFolders) -> str:
    """The sentences that follow damage: the two commands for a store at rest."""
    store = log.store if log.store is not None else log.checksums_folder.parent
    told = shlex.join(word for path in log.all() for word in (
        "--commit-log", str(path))) + " " if log.elsewhere else ""
    text = (f"`mqcore store verify {told}{store}` shows everything, "
            f"`mqcore store repair --dry-run {store}` what can be done about it.")
    if not log.elsewhere:
        return text
    link = "a link to its folder" if len(log.all()) == 1 else "a folder of links to its segments"
    return (f"{text} The repair wants the log in the store: let {store / LOG} be {link} as long as "
            "it runs.")


def judge_empty(log: LogFolders, ends: QueueEnds | None, flushed_ms: int, queues: str) -> None:
    """
    Whether a log without a segment had records: the disk that has it may not be mounted. ends: of
    the last run; flushed_ms: store time up to which the checkpoint, ours or stock's, has the log on
    disk; queues: their folder, "": what they say does not count. Raises DamagedStoreError.
    """
    if ends is not None and ends.end > ends.first:
        word = f"it ended at position {ends.end}"
    elif flushed_ms > 0:
        word = "the checkpoint tells of records"
    elif queues and _have_entries(Path(queues)):
        word = "the consume queues point to records"
    else:
        return
    raise DamagedStoreError(f"{log}: there is no segment of the commit log, and {word}: records "
                            f"are gone. {what_to_do(log)}")


def _have_entries(queues: Path) -> bool:
    """Whether a file of a queue begins with an entry."""
    for _, _, folder in queue_folders(queues):
        for path in folder.iterdir():
            if FILE_NAME.fullmatch(path.name):
                with opened(path, os.O_RDONLY) as fd:
                    if any(os.pread(fd, CQ_ENTRY_SIZE, 0)):
                        return True
    return False
