"""`mqcore store verify|stat|dump`: look into a store at rest, stock or ours."""
from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from mqcore.admin.lines import say
from mqcore.store.log.folders import LogFolders
from mqcore.store.ownership import StoreInUseError, StoreLock
from mqcore.store.verify.files import StoreListing, read_log
from mqcore.store.verify.report import DAMAGE, Report
from mqcore.store.verify.scan import LogScan
from mqcore.store.verify.store import DELAY_LEVELS_MS, Progress, delay_levels_ms, verify
from mqcore.wire.printable import json_line
from mqcore.wire.records import Record, RecordError, decode_record

EXIT_USAGE = 2
TIME_MAX_MS = 2**63 - 1
BAR_INTERVAL_BYTES = 16 << 20

store_argument = click.argument(
    "store", type=click.Path(exists=True, file_okay=False, path_type=Path))
force_option = click.option("--force", is_flag=True,
                            help="Also while a broker runs on the store: a moving picture.")
log_option = click.option(
    "--commit-log", "log_folders", multiple=True, metavar="PATH",
    type=click.Path(exists=True, file_okay=False, path_type=Path), callback=lambda _c, _p, paths: (
        LogFolders(tuple(path.absolute() for path in paths)) if paths else None),
    help="A folder of the commit log, where it is not in STORE; may be repeated.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class DelayLevels(click.ParamType):
    """A stock messageDelayLevel: durations with a unit, between blanks."""

    name = "levels"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return delay_levels_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Time(click.ParamType):
    """Milliseconds since 1970, or a local time in ISO form; becomes milliseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        if text.isascii() and text.isdecimal() and len(text) <= 18:
            return int(text)
        try:
            return int(datetime.fromisoformat(text).timestamp() * 1000)
        except (ValueError, OverflowError):
            self.fail(f"{value!r}: expected milliseconds since 1970 or a time such as "
                      "2026-01-31T12:00:00", param, ctx)


class NotChecked(click.ClickException):
    """Nothing is known of the store: it is in use, missing, or the disk refuses."""

    exit_code = EXIT_USAGE


def _in_use(error: StoreInUseError) -> NotChecked:
    return NotChecked(f"{error}; stop it, or give --force")


def _failed(error: OSError) -> NotChecked:
    return NotChecked(str(error))


def _verified(store: Path, options: dict[str, Any], progress: Progress | None) -> Report:
    try:
        return verify(store, progress=progress, **options)
    except StoreInUseError as error:
        raise _in_use(error) from None
    except OSError as error:
        raise _failed(error) from error


@click.command("verify")
@store_argument
@force_option
@log_option
@json_option
@click.option("--index/--no-index", default=True, show_default=True,
              help="Check the key index; --no-index for a broker that runs without one.")
@click.option("--index-slots", type=click.IntRange(1, 100_000_000), metavar="N",
              help="Hash slots of an index file [default: found out from the files].")
@click.option("--delay-levels", "delay_levels_ms", type=DelayLevels(), default=DELAY_LEVELS_MS,
              show_default="stock's 18 levels", help="The broker's messageDelayLevel.")
def verify_command(store: Path, as_json: bool, **options: Any) -> None:
    """
    Check every rule of the format of STORE, which no broker uses meanwhile.

    Exit status: 0 sound; 3 the next start mends it and loses nothing acknowledged; 1 damaged;
    2 not checked.
    """
    if sys.stderr.isatty() and not as_json:
        with click.progressbar(length=1, label="commit log", file=sys.stderr) as bar:
            def progress(done: int, total: int) -> None:
                bar.length = max(total, 1)
                bar.update(done - bar.pos)

            report = _verified(store, options, progress)
    else:
        report = _verified(store, options, None)
    if as_json:
        click.echo(json.dumps(report.as_dict()))
    else:
        say(report.lines())
    sys.exit(report.status)


# -- stat ------------------------------------------------------------------------------------------

@click.command("stat")
@store_argument
@force_option
@log_option
@json_option
@click.option("-t", "--topic", help="This topic only.")
def stat(store: Path, force: bool, as_json: bool, topic: str | None,
         log_folders: LogFolders | None) -> None:
    """Messages, bytes and times of each topic and queue in STORE."""
    report = _verified(store, {"force": force, "index": False,
                               "log_folders": log_folders}, None)
    queues = [queue for queue in report.queues if topic is None or queue["topic"] == topic]
    if as_json:
        click.echo(json.dumps({"store": report.store, "figures": report.figures,
                               "queues": [described(queue) for queue in queues]}))
    else:
        say(_table([described(queue) for queue in queues]))
        click.echo(f"commit log from {report.figures['first']} to {report.figures['end']}, "
                   f"{report.figures['segments']} segments of {report.figures['segment_bytes']} "
                   f"bytes, {report.figures['records']} records"
                   + _span(report.figures["first_time_ms"], report.figures["last_time_ms"]))
    if any(finding.severity == DAMAGE for finding in report.findings):
        click.echo(f"{store} is damaged: `mqcore store verify` says where", err=True)


def described(queue: dict[str, Any]) -> dict[str, Any]:
    """What `stat` says of one queue."""
    begins = queue["first_live"] if queue["first_live"] >= 0 else queue["end"]
    return {
        "topic": queue["topic"], "queueId": queue["queueId"], "minOffset": begins,
        "maxOffset": queue["end"], "messages": queue["records"], "bytes": queue["bytes"],
        "bodyBytes": queue["body_bytes"], "firstStoreTime": queue["first_time_ms"],
        "lastStoreTime": queue["last_time_ms"],
    }


def _table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"{'topic':<40} {'queue':>6} {'min':>12} {'max':>12} {'messages':>12} {'bytes':>16}  "
             "first and last stored"]
    for row in rows:
        lines.append(
            f"{row['topic']:<40} {row['queueId']:>6} {row['minOffset']:>12} {row['maxOffset']:>12} "
            f"{row['messages']:>12} {row['bytes']:>16}"
            + _span(row["firstStoreTime"], row["lastStoreTime"]).replace(", ", "  ", 1))
    return lines


def _span(first_ms: int, last_ms: int) -> str:
    if not last_ms:
        return ""
    return f", {_time(first_ms)} to {_time(last_ms)}"


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000).isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


# -- dump ------------------------------------------------------------------------------------------

@click.command("dump")
@store_argument
@force_option
@log_option
@click.option("-t", "--topic", help="Records of this topic only.")
@click.option("-q", "--queue", "queue_id", type=click.IntRange(0, 2**31 - 1), default=None,
              help="Of queues with this number only.")
@click.option("-k", "--key", help="With this key, or this unique id, only.")
@click.option("--from", "from_ms", type=Time(), default=0, help="Stored at or after this time.")
@click.option("--to", "to_ms", type=Time(), default=TIME_MAX_MS, help="Stored at or before it.")
@click.option("--start", type=click.IntRange(0), default=0, help="From this log position on.")
@click.option("--stop", type=click.IntRange(0), default=TIME_MAX_MS, help="Before this position.")
@click.option("-n", "--count", type=click.IntRange(1), help="At most so many records.")
@click.option("--body/--no-body", default=True, show_default=True, help="Show the bodies.")
def dump(store: Path, force: bool, count: int | None, body: bool, **wanted: Any) -> None:
    """Records of STORE as JSON lines, in log order."""
    try:
        lock = None if force else StoreLock(store, wanted["log_folders"])
    except StoreInUseError as error:
        raise _in_use(error) from None
    try:
        for number, record in enumerate(records(store, **wanted), 1):
            click.echo(json_line(as_json(record, body=body)))
            if number == count:
                break
    except BrokenPipeError:                    # the reader has seen enough
        raise
    except OSError as error:
        raise _failed(error) from error
    finally:
        if lock is not None:
            lock.release()


def records(store: Path, *, topic: str | None = None, queue_id: int | None = None,
            key: str | None = None, from_ms: int = 0, to_ms: int = TIME_MAX_MS, start: int = 0,
            stop: int = TIME_MAX_MS, log_folders: LogFolders | None = None) -> Iterator[Record]:
    """The records that fit, in log order; ends with exit status 1 where the log is not readable."""
    files = StoreListing(store, log_folders or LogFolders(()))
    trouble = Report(str(store))
    read_log(files, trouble, unclean=True)
    for finding in trouble.findings:
        if finding.severity == DAMAGE:
            say(finding.line(), err=True)
    scan = LogScan(
        files.log.text(), files.segments, start=start, stop=stop,
        topic=None if topic is None else os.fsencode(topic),
        queue_id=-1 if queue_id is None else queue_id,
        key=None if key is None else os.fsencode(key), from_ms=from_ms, to_ms=to_ms)
    while (raw := scan.next()) is not None:
        try:
            yield decode_record(raw)
        except RecordError as error:           # whole, and yet not to be read: names, properties
            say(f"record before log position {scan.position}: {error}", err=True)
    if scan.result < 0 and not _is_zero(files, scan.position):
        click.echo(f"no record at log position {scan.position}: the end, torn or damaged; "
                   "`mqcore store verify` says more", err=True)
        sys.exit(1)


def _is_zero(files: StoreListing, position: int) -> bool:
    """Whether nothing was written at a log position: the end of a log."""
    for start, size in files.segments:
        if start <= position < start + size:
            with files.log.path(start).open("rb") as segment:
                segment.seek(position - start)
                return not any(segment.read(64))
    return True


def as_json(record: Record, *, body: bool) -> dict[str, Any]:
    """A record for a line of JSON: text where the body is UTF-8, else base64."""
    line: dict[str, Any] = {
        "position": record.physical_offset, "msgId": record.message_id, "size": record.size,
        "topic": record.topic,
        "queueId": record.queue_id, "queueOffset": record.queue_offset, "flag": record.flag,
        "sysFlag": record.sys_flag, "bornTimestamp": record.born_timestamp_ms,
        "bornHost": _host(record.born_host), "storeTimestamp": record.store_timestamp_ms,
        "storeHost": _host(record.store_host), "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "properties": dict(record.properties), "bodyLength": len(record.body),
    }
    if body:
        try:
            line["body"] = record.body.decode("utf-8")
        except UnicodeDecodeError:
            line["bodyBase64"] = base64.b64encode(record.body).decode("ascii")
    return line


def _host(host: tuple[str, int]) -> str:
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
