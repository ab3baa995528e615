"""`mqcore store backup` and `mqcore store restore`: copies of a store, and stores made of them."""
from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import click

from mqcore.admin.lines import say
from mqcore.admin.store import (
    DelayLevels,
    NotChecked,
    Time,
    json_option,
    log_option,
    store_argument,
)
from mqcore.backup.chain import Backups
from mqcore.backup.errors import BackupError, BadBackupError, BadStoreError
from mqcore.backup.make import Made, to_folder, to_stream
from mqcore.backup.manifest import Manifest
from mqcore.backup.pieces import Pace
from mqcore.backup.restore import Restored, Until, restore
from mqcore.store.log.folders import LogFolders
from mqcore.store.verify.report import WORDS
from mqcore.store.verify.store import DELAY_LEVELS_MS

STREAM = "-"
TOLD_EVERY_S = 1.0
MEGABYTE = 1_000_000
SEGMENT_NAME_DIGITS = 20          # a position, as a segment is called
POSITION_MAX = (1 << 63) - 1


class Refused(click.ClickException):
    """The store or the backup is damaged."""

    exit_code = 1


class Position(click.ParamType):
    """A log position, as `@N`, or a time as `Time` has it."""

    name = "time|@position"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> Until:
        if isinstance(value, Until):
            return value
        text = str(value)
        if not text.startswith("@"):
            return Until(time_ms=Time().convert(text, param, ctx))
        digits = text[1:]
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= SEGMENT_NAME_DIGITS
                and int(digits) <= POSITION_MAX):
            self.fail(f"{value!r}: expected @ and a log position in bytes", param, ctx)
        return Until(position=int(digits))


def _progress(*, shown: bool) -> Callable[[int], None] | None:
    """Says now and then how many bytes were read; None: nobody looks."""
    if not shown or not sys.stderr.isatty():
        return None
    said = began = time.monotonic()

    def told(count: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= TOLD_EVERY_S:
            said = now
            click.echo(f"\r{count / MEGABYTE:,.0f} MB read, "
                       f"{count / MEGABYTE / (now - began):,.0f} MB/s ", nl=False, err=True)
    return told


def _done(work: Callable[[], Any]) -> Any:
    """Run it; what goes wrong is one line and a status."""
    try:
        return work()
    except (BadStoreError, BadBackupError) as error:
        raise Refused(_one_line(str(error))) from None
    except BackupError as error:
        raise NotChecked(_one_line(str(error))) from None
    except BrokenPipeError:
        raise NotChecked("whoever reads the stream has gone") from None
    except OSError as error:
        raise NotChecked(_one_line(str(error))) from error


def _one_line(text: str) -> str:
    return " ".join(text.split())


@click.command("backup")
@store_argument
@click.argument("to", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--incremental", is_flag=True, help="Only what is new since the last backup in TO.")
@click.option("--copy", is_flag=True, help="Copy all bytes: no links, no clones.")
@click.option("--damaged", is_flag=True,
              help="Take a damaged log as it is; a restore gives the same damage back.")
@click.option("--keep", type=click.IntRange(1), metavar="N",
              help="Afterwards remove old ones: N and what they go on from stay.")
@click.option("--rate", type=click.IntRange(1), metavar="MB/s",
              help="Read so many megabytes a second at most.")
@log_option
@json_option
def backup_command(store: Path, to: Path, rate: int | None, as_json: bool,
                   log_folders: LogFolders | None, **options: Any) -> None:
    """
    Copy STORE, whether a broker runs on it or not, to a new folder in TO, or to standard output as
    a tar if TO is `-`. Nothing in the store is changed.

    Exit status: 0 done; 1 the store is damaged; 2 not done. Without 0 there is no backup.
    """
    given: dict[str, Any] = {
        "log": log_folders, "rate": rate * MEGABYTE if rate is not None else None,
        "told": _progress(shown=not as_json)}
    if str(to) == STREAM:
        damaged = options.pop("damaged")
        if any(options.values()):
            raise click.UsageError("--incremental, --copy and --keep need a folder")
        if sys.stdout.isatty():
            raise click.UsageError("a tar is nothing for a terminal")
        made = _done(lambda: to_stream(store, sys.stdout.buffer, damaged=damaged, **given))
    else:
        made = _done(lambda: to_folder(store, to, **options, **given))
    _say_made(made, as_json=as_json, err=str(to) == STREAM)


def _say_made(made: Made, *, as_json: bool, err: bool) -> None:
    manifest = made.manifest
    if as_json:
        click.echo(json.dumps({
            "path": made.path, "seconds": round(made.seconds, 3), "bytes": made.how,
            "removed": made.removed, **described(manifest)}), err=err)
        return
    how = ", ".join(f"{count / MEGABYTE:,.1f} MB {what}" for what, count in made.how.items())
    say([*(f"removed {id_}" for id_ in made.removed), *_damage(manifest),
         f"{made.path}: the log from {manifest.first} to {manifest.end}"
         + (f", new since {manifest.parent}" if manifest.parent else "")
         + f"; {how}; {made.seconds:.2f} s"], err=err)


def _damage(manifest: Manifest) -> list[str]:
    return [f"the store is damaged: {manifest.damage}"] if manifest.damage else []


def described(manifest: Manifest) -> dict[str, Any]:
    """What people and programs want to know of a backup."""
    return {"id": manifest.id, "store": manifest.store, "host": manifest.host,
            "broker": manifest.broker, "beganMs": manifest.began_ms, "endedMs": manifest.ended_ms,
            "first": manifest.first, "end": manifest.end, "parent": manifest.parent,
            "lastStoreTime": manifest.last_time_ms, "damage": manifest.damage,
            "ownBytes": manifest.own_bytes()}


@click.command("restore")
@click.argument("source", metavar="FROM", type=click.Path(path_type=Path, allow_dash=True))
@click.argument("to", type=click.Path(path_type=Path), required=False)
@click.option("--until", type=Position(), help="Only records up to this store time (milliseconds "
              "since 1970, or 2026-01-31T12:00:00), or to this log position (@N).")
@click.option("--list", "listed", is_flag=True, help="Show the backups that are in FROM.")
@click.option("--check", is_flag=True, help="Hold all bytes of the backup against their sums.")
@click.option("--delay-levels", "delay_levels_ms", type=DelayLevels(), default=DELAY_LEVELS_MS,
              show_default="stock's 18 levels", help="The broker's messageDelayLevel.")
@click.option("--json", "as_json", is_flag=True,
              help="Print one JSON object, with --list one in a line for each backup.")
def restore_command(source: Path, to: Path | None, until: Until | None, listed: bool, check: bool,
                    delay_levels_ms: tuple[int, ...], as_json: bool) -> None:
    """
    Make a store at TO, a new or an empty folder, of a backup: FROM is one, or a folder of backups
    (its newest), or `-`, the stream that `mqcore store backup STORE -` wrote.

    Exit status: 0 done, and the store is sound or made whole by its first start; 1 the backup is
    damaged; 2 not done. Without 0 nothing is left at TO.
    """
    if listed or check:
        if to is not None or until is not None or str(source) == STREAM:
            raise click.UsageError("--list and --check take a folder, and nothing else")
        _done(lambda: _list(source, as_json=as_json) if listed else _check(source, as_json=as_json))
        return
    if to is None:
        raise click.UsageError("missing argument TO")
    stream: BinaryIO | Path = sys.stdin.buffer if str(source) == STREAM else source
    restored = _done(lambda: restore(stream, to, until, delay_levels_ms=delay_levels_ms,
                                     told=_progress(shown=not as_json)))
    _say_restored(restored, to, as_json=as_json)


def _say_restored(restored: Restored, to: Path, *, as_json: bool) -> None:
    manifest = restored.manifest
    if as_json:
        click.echo(json.dumps({
            "path": os.fspath(to), "seconds": round(restored.seconds, 3), "end": restored.end,
            "messages": restored.messages, "lastStoreTime": restored.last_time_ms,
            "entriesCut": restored.entries_cut, "offsetsCut": restored.offsets_cut,
            "rebuilt": restored.rebuilt, "status": restored.report.status,
            "backup": described(manifest)}))
        return
    lines = [f"{part} is written anew by the next start: {why}"
             for part, why in restored.rebuilt.items()]
    if restored.end < manifest.end:
        lines.append(f"cut: {manifest.end - restored.end} bytes of the log behind position "
                     f"{restored.end}")
    if restored.entries_cut or restored.offsets_cut:
        lines.append(f"{restored.entries_cut} entries of queues and {restored.offsets_cut} offsets "
                     "were beyond the log's end")
    say([*_damage(manifest), *lines,
         f"{to}: {restored.messages:,} messages, the log from {manifest.first} to {restored.end}, "
         f"the last of {_time(restored.last_time_ms)}; {restored.seconds:.2f} s",
         f"verdict: {WORDS[restored.report.status]}"])


def _list(source: Path, *, as_json: bool) -> None:
    backups, _ = Backups.at(source)
    for id_ in backups.ids():
        try:
            found = described(backups.manifest(id_))
        except BadBackupError as error:
            found = {"id": id_, "error": str(error)}
        if as_json:
            click.echo(json.dumps(found))
        elif "error" in found:
            say(f"{id_}: {found['error']}")
        else:
            say(f"{id_}: {found['store']} at {found['host']}, the log from {found['first']} to "
                f"{found['end']}, the last record of {_time(found['lastStoreTime'])}, "
                f"{found['ownBytes'] / MEGABYTE:,.1f} MB"
                + (f", goes on from {found['parent']}" if found["parent"] else ""))


def _check(source: Path, *, as_json: bool) -> None:
    backups, id_ = Backups.at(source)
    pace = Pace(told=_progress(shown=not as_json))
    backups.check(backups.manifest(id_), pace)
    if as_json:
        click.echo(json.dumps({**described(backups.manifest(id_)), "bytes": pace.bytes}))
    else:
        say(f"{backups.folder / id_}: sound, {pace.bytes / MEGABYTE:,.1f} MB")


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000).isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
