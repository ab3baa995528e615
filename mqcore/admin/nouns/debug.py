"""`mqcore debug bundle`: the state of brokers in one file, for support."""
from __future__ import annotations

import asyncio
import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import msgspec
import posix_ipc

import mqcore
from mqcore.admin.shell import units
from mqcore.admin.shell.runner import reads
from mqcore.admin.shell.view import Column, Table, Text, View
from mqcore.admin.status import PREFIX, describe
from mqcore.client import AsyncAdmin, RocketMQError
from mqcore.client.admin import BrokerStatus
from mqcore.shm.segment import LayoutError, stale_segments

LOG_BYTES = 1 << 20                    # of the end of each log file
SECRET = re.compile("password|passwd|secret|token", re.IGNORECASE)
HIDDEN = "(not in the bundle)"
LIBRARIES = ("click", "msgspec", "msgpack", "posix_ipc", "setproctitle", "zstandard", "lz4")

FILES = (Column("FILE", "name"), Column("SIZE", "bytes", units.size, right=True))
TROUBLES = (Column("NOT COLLECTED", "what"), Column("WHY", "error"))


class Bundle:
    """Files in one folder `top` of a tar; what cannot be collected is a line in errors.json."""

    def __init__(self, tar: tarfile.TarFile, top: str) -> None:
        self._tar = tar
        self._top = top
        self.files: list[dict[str, Any]] = []
        self.errors: list[dict[str, str]] = []

    def add(self, name: str, raw: bytes) -> None:
        entry = tarfile.TarInfo(f"{self._top}/{name}")
        entry.size, entry.mode, entry.mtime = len(raw), 0o600, int(time.time())
        self._tar.addfile(entry, io.BytesIO(raw))
        self.files.append({"name": name, "bytes": len(raw)})

    def put(self, name: str, document: object) -> None:
        """The document as JSON; of a client's classes their fields."""
        plain = msgspec.to_builtins(document, str_keys=True, enc_hook=str)
        self.add(name, json.dumps(plain, indent=2).encode(errors="replace"))

    def miss(self, what: str, error: BaseException) -> None:
        self.errors.append({"what": what, "error": str(error) or type(error).__name__})


@click.command("bundle")
@click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False),
              help="Where it is written  [default: mqcore-bundle-TIME.tar.gz].")
@click.option("--log", "logs", multiple=True, metavar="FILE",
              type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="A log file whose end goes into it; may be given again.")
@click.option("--log-bytes", default=LOG_BYTES, show_default=True,
              type=click.IntRange(1, 1 << 30), help="Of the end of each log file.")
@reads(items=True)
async def bundle_command(
    admin: AsyncAdmin, file: Path | None, logs: tuple[Path, ...], log_bytes: int,
) -> View:
    """Write versions, settings without secrets, tables, figures and ends of logs to one file."""
    target = file or Path(time.strftime("mqcore-bundle-%Y%m%d-%H%M%S.tar.gz"))
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as sink, tarfile.open(fileobj=sink, mode="w:gz") as tar:
        bundle = Bundle(tar, target.name.removesuffix(".tar.gz"))
        bundle.put("versions.json", versions())
        for name in stale_segments(PREFIX):
            _add_run(bundle, name)
        await _add_cluster(bundle, admin)
        for number, log in enumerate(logs):
            _add_log(bundle, f"logs/{number}-{log.name}", log, log_bytes)
        bundle.put("errors.json", bundle.errors)
    document = {"file": str(target), "files": bundle.files, "errors": bundle.errors}
    parts: list[Table | Text] = [Table(FILES, bundle.files)]
    if bundle.errors:
        parts.append(Table(TROUBLES, bundle.errors))
    return View(document, [*parts, Text([f"written to {target}; look at it before you send it: "
                                         "it has names of topics, groups and clients"])],
                items="files")


def versions() -> dict[str, Any]:
    """Of the program, its libraries and the machine."""
    return {
        "mqcore": mqcore.__version__, "python": sys.version, "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()), "machine": platform.machine(),
        "processors": os.cpu_count(),
        "memoryBytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "load": os.getloadavg(),
        "libraries": {name: _version(name) for name in LIBRARIES},
    }


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


# -- brokers of this machine ----------------------------------------------------------------------

def _add_run(bundle: Bundle, name: str) -> None:
    try:
        run = describe(name)
        if run is None:                # its supervisor is gone
            return
        bundle.put(f"runs/{name.strip('/')}.json", run)
        for process in run["processes"] if isinstance(run["processes"], list) else []:
            _add_process(bundle, process["role"], process["pid"])
    except posix_ipc.ExistentialError:            # it ended meanwhile
        return
    except (OSError, LayoutError) as error:
        bundle.miss(name, error)


def _add_process(bundle: Bundle, role: str, pid: int) -> None:
    for what in ("status", "limits", "smaps_rollup"):
        try:
            bundle.add(f"processes/{role}-{pid}/{what}", Path(f"/proc/{pid}/{what}").read_bytes())
        except OSError as error:
            bundle.miss(f"{what} of process {pid}", error)


# -- the cluster ----------------------------------------------------------------------------------

async def _add_cluster(bundle: Bundle, admin: AsyncAdmin) -> None:
    """Each part by itself: what a broker does not answer is missing, and nothing else."""
    async def collect(name: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        try:
            found = await ask()
        except (RocketMQError, OSError) as error:
            bundle.miss(name, error)
            return ()
        for one in getattr(found, "unreachable", ()):
            bundle.miss(f"{name} of {one.name}", one.error)
        rows = list(found)
        bundle.put(f"cluster/{name}.json", rows)
        return rows

    await collect("clusters", admin.clusters)
    brokers: list[BrokerStatus] = list(await _status(bundle, admin))
    await asyncio.gather(*(_add_settings(bundle, admin, one) for one in brokers))
    await collect("topics", admin.topics_on_brokers)
    await collect("groups", admin.groups_on_brokers)
    await collect("backlogs", admin.backlogs)


async def _status(bundle: Bundle, admin: AsyncAdmin) -> list[BrokerStatus]:
    try:
        found = await admin.cluster_status()
    except (RocketMQError, OSError) as error:
        bundle.miss("status of brokers", error)
        return []
    for one in found.unreachable:
        bundle.miss(f"status of {one.name}", one.error)
    for status in found:
        bundle.put(f"brokers/{_file_name(status)}-status.json", dict(status.values))
    return list(found)


async def _add_settings(bundle: Bundle, admin: AsyncAdmin, one: BrokerStatus) -> None:
    try:
        settings = await admin.broker_config(one.address)
    except (RocketMQError, OSError) as error:
        bundle.miss(f"settings of {one.broker_name}", error)
        return
    bundle.put(f"brokers/{_file_name(one)}-settings.json", without_secrets(settings))


def without_secrets(settings: Any) -> dict[str, str]:
    """A broker hides its own; one of another kind may not."""
    return {name: HIDDEN if SECRET.search(name) and value else value
            for name, value in sorted(settings.items())}


def _file_name(one: BrokerStatus) -> str:
    """A broker's name may hold anything."""
    return f"{re.sub('[^A-Za-z0-9._-]', '_', one.broker_name)[:100]}-{one.broker_id}"


# -- logs -----------------------------------------------------------------------------------------

def _add_log(bundle: Bundle, name: str, log: Path, most: int) -> None:
    try:
        with log.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - most))
            bundle.add(name, opened.read(most))
    except OSError as error:
        bundle.miss(str(log), error)
