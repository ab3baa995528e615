"""
Names of topics and groups for the completion of a shell.

They are asked for once in LIFE_S and kept in a file of the user's cache. A broker that cannot be
asked within WAIT_S completes nothing: a shell has no place for an error.
"""
from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mqcore.admin.shell.connection import Connection, connection
from mqcore.client import AsyncAdmin, RocketMQError

LIFE_S = 60
WAIT_S = 2.0
NAMES_MAX = 1_000                      # that a shell is offered
FILE_BYTES_MAX = 16 << 20
# What a shell takes for itself, as a pipe or a blank, is offered to none.
HARMLESS = re.compile(r"[A-Za-z0-9_%.@:+-]+")

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def _completes(kind: str) -> Complete:
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        return [name for name in names(ctx.params, kind)
                if name.startswith(incomplete) and HARMLESS.fullmatch(name)][:NAMES_MAX]

    return complete


topic_names = _completes("topics")
group_names = _completes("groups")


def names(options: dict[str, Any], kind: str) -> list[str]:
    """kind: topics or groups; options: of the command so far, which say whom to ask."""
    with contextlib.suppress(click.ClickException, RocketMQError, OSError, TimeoutError):
        where = connection(options.get("namesrv"), options.get("context"), None)
        file = _file(where)
        found = _kept(file)
        if found is None:
            found = asyncio.run(_asked(where))
            _keep(file, found)
        return found.get(kind, [])
    return []


async def _asked(where: Connection) -> dict[str, list[str]]:
    async with asyncio.timeout(WAIT_S), AsyncAdmin(
            where.namesrv, credentials=where.credentials) as admin:
        topics, groups = await asyncio.gather(admin.topics(user_only=True), admin.groups())
        return {"topics": list(topics), "groups": list(groups)}


def _file(where: Connection) -> Path:
    """One for each name server, and account: others may see other names."""
    account = where.credentials.access_key if where.credentials is not None else ""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    key = hashlib.sha256(f"{where.namesrv}\n{account}".encode()).hexdigest()[:32]
    return Path(folder) / "mqcore" / f"names-{key}.json"


def _kept(file: Path) -> dict[str, list[str]] | None:
    """None: there are none, or older ones, or a file of another kind."""
    try:
        if not 0 <= time.time() - file.stat().st_mtime < LIFE_S:
            return None
        with file.open("rb") as opened:
            document = json.loads(opened.read(FILE_BYTES_MAX))
    except (OSError, ValueError):
        return None
    kinds = ("topics", "groups")
    if not isinstance(document, dict) or not all(
            isinstance(document.get(kind), list)
            and all(isinstance(name, str) for name in document[kind]) for kind in kinds):
        return None
    return {kind: document[kind] for kind in kinds}


def _keep(file: Path, found: dict[str, list[str]]) -> None:
    """Readable for its owner only: names may be secrets. A disk that refuses is no trouble."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            json.dump(found, opened)
        temporary.replace(file)
