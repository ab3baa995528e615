"""What a start that finds a damaged store says."""
from __future__ import annotations

import shlex

from mqcore.store.log.folders import LOG, LogFolders


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
