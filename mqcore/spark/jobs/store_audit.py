"""
The job `store-audit`: `mqcore store verify`, spread over a cluster. The same rules, words and
verdicts (docs/verify.md): the log is read in parts, and joined with consume queues and key index.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from mqcore.layout import INDEX_BEGIN_TIME, INDEX_END_TIME, INDEX_HEADER_SIZE, INDEX_NEXT_ENTRY
from mqcore.spark.jobs import audit_tables as tables
from mqcore.spark.jobs.frame import Outcome, run, spark_options
from mqcore.spark.session import in_own_session, local_rows
from mqcore.spark.store.at_rest import LogPlan, StoreAtRest, plan
from mqcore.spark.store.audit_source import KEYS, LOG
from mqcore.spark.store.audit_source import NAME as AUDIT
from mqcore.spark.store.source import NAME as STORE
from mqcore.store.log.folders import LogFolders
from mqcore.store.verify.files import FilesOfQueue
from mqcore.store.verify.findings import FINDINGS_OF_A_KIND_MAX, FindingKind
from mqcore.store.verify.log import LogVerifier
from mqcore.store.verify.report import WORDS, Report
from mqcore.store.verify.store import DELAY_LEVELS_MS, Verification, delay_levels_ms

LOST_TOPIC: Final = "MQCORE_LOST"       # what a repair left where records were
NOWHERE: Final = 2**62
SPLIT_BYTES: Final = 256 << 20


@in_own_session
def audit(spark: Any, store: str | Path, *, log_folders: LogFolders | None = None,
          force: bool = False, index: bool = True, index_slots: int | None = None,
          delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
          split_bytes: int = SPLIT_BYTES) -> Report:
    """
    Check every rule of a store at rest, as `mqcore.store.verify.store.verify` does.

    split_bytes  of the log for one task, about; the others: as there
    Raises StoreError, StoreInUseError, OSError.
    """
    place, listing = StoreAtRest.open(store, log_folders, force=force)
    with place.held():
        root = Path(place.root)
        verification = Verification(root, delay_levels_ms, None, log_folders or LogFolders(()))
        for content in verification.look(index=index, index_slots=index_slots):
            content.close()
        made = plan(place, listing, split_bytes=split_bytes)
        options: dict[str, Any] = {"force": True, "splitBytes": split_bytes}
        if log_folders is not None:
            options["commitLogPaths"] = ",".join(map(str, log_folders.all()))
        walked = AuditedStore(spark, verification, place, made, options, index=index)
        try:
            walked.read()
            verification.judge(walked, index=index)
        finally:
            walked.close()
    return verification.report


class AuditedStore:
    """What Spark found, under the names of the native walk (mqcore.store.verify.store.Walked)."""

    def __init__(self, spark: Any, verification: Verification, place: StoreAtRest, made: LogPlan,
                 options: dict[str, Any], *, index: bool) -> None:
        self._spark = spark
        self._files = verification.files
        self._delay_ms = verification.delay_levels_ms
        self._place = place
        self._plan = made
        self._options = options
        self._index = index
        self._queues: list[dict[str, Any]] = []
        self._numbers: dict[tuple[str, int], int] = {}
        self._figures: dict[str, int] = {}
        self._kept: list[dict[str, int]] = []
        self._counts = [0] * int(FindingKind.FOUND_KINDS)
        self._cached: list[Any] = []
        self._wrong: set[FindingKind] = set()           # of those that are counted first
        self._has_sides = True

    # -- reading -----------------------------------------------------------------------------------

    def read(self) -> None:
        """Run the joins."""
        self._read_log()
        self._read_queues()
        self._read_index()

    def close(self) -> None:
        """Let go of what is cached."""
        for frame in self._cached:
            frame.unpersist()

    def _view(self, name: str, frame: Any, *, cache: bool = False) -> Any:
        if cache:
            frame = frame.persist()
            self._cached.append(frame)
        frame.createOrReplaceTempView(name)
        return frame

    def _audited(self, table: str) -> Any:
        return self._spark.read.format(AUDIT).options(
            table=table, delayLevels=",".join(map(str, self._delay_ms)), **self._options
        ).load(self._place.root)

    def _read_log(self) -> None:
        self._view("logged", self._audited(LOG), cache=True)
        row = self._spark.sql(tables.log_counts(LOST_TOPIC)).first().asDict()
        lost = row.pop("lost")
        self._damaged_from = NOWHERE if lost is None else int(lost)
        self._wrong = {kind for kind in tables.IN_LOG if row.pop(kind.name)}
        self._has_sides = bool(row.pop("sides"))
        self._figures = {name: int(value) for name, value in row.items()}
        self._figures |= {"end": self._plan.end, "end_result": self._plan.end_result}
        self._view("stretches", self._spark.sql("""
            SELECT position AS begin, expected AS further FROM logged WHERE kind = 'trouble'"""))

    # -- queues ------------------------------------------------------------------------------------

    def _read_queues(self) -> None:
        spark, first, end = self._spark, self._plan.first, self._plan.end
        self._view("disk", local_rows(
            spark, [(_plain(one.topic), one.queue_id, one.first) for one in self._files.queues],
            "topic string, queueId int, first bigint"))
        self._view("queued", spark.read.format(STORE).options(
            what="consumequeue", columns="topic,queueId,queueOffset,commitLogOffset,size,tagsCode,"
            "unitTagsCode,unitStoreTimestamp", **self._options).load(self._place.root))
        views = tables.QUEUE_VIEWS | ({} if self._has_sides else {"resolved": tables.PLAIN})
        for name, text in views.items():
            self._view(name, spark.sql(text), cache=name in ("there", "judged"))
        logged: dict[tuple[str, int], dict[str, int]] = {}
        there: dict[tuple[str, int], dict[str, int]] = {}
        for row in spark.sql(tables.queue_counts(first, end)).collect():
            into, counts = (there, row.onDisk) if row.inLog is None else (logged, row.inLog)
            into[row.topic, row.queueId] = tables.numbers(counts)
        self._wrong |= {kind for kind in tables.IN_JUDGED
                        if sum(one.pop(kind.name) for one in logged.values())}
        self._wrong |= self._out_of_order(list(logged.values()), list(there.values()))
        there = {queue: one for queue, one in there.items() if one["entries"]}
        listed = {(one.topic, one.queue_id): one for one in self._files.queues}
        if [queue for queue, one in there.items()
                if one.pop("entries") != one["end"] - (listed[queue].first if queue in listed
                                                       else 0)]:
            self._wrong.add(FindingKind.FOUND_ENTRY_HOLE)
        for queue in sorted(set(listed) | set(logged)):
            self._numbers[queue] = len(self._queues)
            self._queues.append(_queue(queue, listed.get(queue), logged.get(queue),
                                       there.get(queue)))
        self._figures["plain_delays"] = sum(one["plain_delays"] for one in self._queues)
        self._figures["unknown_side_queues"] = spark.sql(
            "SELECT 1 FROM resolved WHERE queueId IS NULL").count() if self._has_sides else 0
        self._collect(tables.queue_findings(first, end, self._damaged_from, self._wrong))

    def _out_of_order(self, logged: list[dict[str, int]], there: list[dict[str, int]]
                      ) -> set[FindingKind]:
        """
        What may be wrong between entries, by the counts of all queues, out of which it takes what
        is for that alone. Where a record is in its own queue only, it is matched once.
        """
        kind = FindingKind
        restarted = sum(one.pop("restarted") for one in logged)
        found = {each for each, count in (
            (kind.FOUND_OFFSET_GAP, restarted + sum(one.pop("gaps", 0) != 0 for one in logged)),
            (kind.FOUND_ENTRY_GARBAGE, sum(one.pop("garbage") for one in there)),
            (kind.FOUND_ENTRY_BEYOND, sum(one["beyond"] for one in there))) if count}
        strays = sum(one["live"] for one in there) - sum(one["matched"] for one in logged)
        if strays or self._has_sides:
            found.add(kind.FOUND_ENTRY_STRAY)
        if found & {kind.FOUND_ENTRY_STRAY, kind.FOUND_ENTRY_BEYOND} or restarted or any(
                one["expired"] for one in there):
            found.add(kind.FOUND_ENTRY_ORDER)       # else it is that of the log
        return found

    # -- the key index -----------------------------------------------------------------------------

    def _read_index(self) -> None:
        self._figures |= {"keys": 0, "keys_matched": 0, "keys_doubled": 0, "keys_missing": 0,
                          "keys_missing_first": -1, "keys_expired": 0, "keys_passed": 0,
                          "time_steps_back": 0}
        if not self._index:
            return
        spark, first, end = self._spark, self._plan.first, self._plan.end
        self._view("keyed", self._audited(KEYS))
        self._view("heads", local_rows(
            spark, self._heads(), "file string, number int, beginMs bigint, endMs bigint,"
            " nextEntry int, beforeEndMs bigint"))
        self._view("indexed", spark.read.format(STORE).options(
            what="index", indexSlots=max(self._files.index_slots, 1), **self._options,
        ).load(self._place.root) if self._files.index else local_rows(
            spark, [], "file string, entry int, keyHash int, commitLogOffset bigint, seconds int"))
        for name, text in tables.INDEX_VIEWS.items():
            self._view(name, spark.sql(text), cache=True)
        torn = FindingKind.FOUND_BAD_RECORD in self._wrong
        for row in spark.sql(tables.index_counts(first, end, torn=torn)).collect():
            self._figures |= tables.numbers(row)
        wrong = {kind for kind in tables.in_placed(first, end) if self._figures.pop(kind.name)}
        known = self._figures["keys_missing"] == 0 and first == 0
        self._collect(tables.index_findings(first, end, known, wrong, torn=torn))
        self._check_chains()

    def _heads(self) -> list[tuple[str, int, int, int, int, int]]:
        """Of each index file: name, number, its header's times and next entry."""
        found: list[tuple[str, int, int, int, int, int]] = []
        before = 0
        for number, path in enumerate(self._files.index):
            with path.open("rb") as file:
                head = file.read(INDEX_HEADER_SIZE)
            begin, end, entries = (int.from_bytes(head[at:at + size], "big", signed=True)
                                   for at, size in ((INDEX_BEGIN_TIME, 8), (INDEX_END_TIME, 8),
                                                    (INDEX_NEXT_ENTRY, 4)))
            entries = min(max(entries, 1), self._files.index_entries)
            found.append((path.name, number, begin, end, entries, before))
            before = end
        return found

    def _check_chains(self) -> None:
        """Slots and chains of each file by itself, in tasks."""
        files = [str(path) for path in self._files.index]
        if not files:
            return
        slots, entries = self._files.index_slots, self._files.index_entries
        context = self._spark.sparkContext
        for number, (kept, counts) in context.parallelize(
                list(enumerate(files)), len(files)).mapValues(
                lambda path: chains(path, slots, entries)).collect():
            self._add([one | {"number": number} for one in kept], counts)

    # -- findings ----------------------------------------------------------------------------------

    def _collect(self, query: str) -> None:
        """The first findings of each kind, and how many there are."""
        if not query:
            return
        rows = self._spark.sql(f"""
            SELECT * FROM (SELECT *, ROW_NUMBER() OVER (
                    PARTITION BY kind ORDER BY position, topic, queueId, file, detail) AS place,
                COUNT(*) OVER (PARTITION BY kind) AS count FROM ({query}))
            WHERE place <= {FINDINGS_OF_A_KIND_MAX}""").collect()
        places = {path.name: number for number, path in enumerate(self._files.index)}
        kept = []
        counts = [0] * int(FindingKind.FOUND_KINDS)
        for row in sorted(rows, key=lambda row: (row.kind, row.place)):
            counts[row.kind] = row["count"]
            number = (places[row.file] if row.file is not None
                      else self._numbers[row.topic, row.queueId] if row.topic is not None else 0)
            is_unit = row.kind == FindingKind.FOUND_EXT_UNIT     # an address, from -2^63 on
            kept.append({"kind": row.kind, "number": number, "position": row.position,
                         "detail": row.detail, "expected": row.expected,
                         "found": row.found + (1 << 63) * is_unit})
        self._add(kept, counts)

    def _add(self, kept: list[dict[str, int]], counts: list[int]) -> None:
        room = [FINDINGS_OF_A_KIND_MAX - sum(one["kind"] == kind for one in self._kept)
                for kind in range(len(self._counts))]
        for one in kept:
            if room[one["kind"]] > 0:
                room[one["kind"]] -= 1
                self._kept.append(one)
        self._counts = [before + more for before, more in zip(self._counts, counts, strict=True)]

    # -- as verification asks for it ---------------------------------------------------------------

    @property
    def queue_count(self) -> int:
        return len(self._queues)

    def figures(self) -> dict[str, int]:
        return self._figures

    def queue(self, number: int) -> dict[str, Any]:
        return self._queues[number]

    def findings(self) -> tuple[list[dict[str, int]], list[int]]:
        return self._kept, self._counts

    def rest(self) -> int:
        return self._place.judge().rest(self._plan.end)

    def replay_from(self, before_ms: int) -> int:
        return self._place.judge().replay_from(before_ms)


def _plain(name: str) -> str:
    """Of a folder: no topic has a name that is no UTF-8."""
    return name.encode("utf-8", "replace").decode()


def _queue(name: tuple[str, int], files: FilesOfQueue | None, logged: dict[str, int] | None,
           there: dict[str, int] | None) -> dict[str, Any]:
    first = files.first if files is not None else 0
    nothing = dict.fromkeys((
        "records", "bytes", "body_bytes", "first_time_ms", "last_time_ms", "matched", "missing",
        "missing_first", "superseded", "plain_delays", "live", "expired", "fillers", "beyond"), 0)
    return {"topic": name[0].encode("utf-8", "surrogateescape"), "queue_id": name[1],
            "on_disk": files is not None, "first": first,
            "limit": files.limit if files is not None else 0, **nothing, "first_live": -1,
            "end": first, **(logged or {}), **(there or {})}


def chains(path: str, slots: int, entries: int) -> tuple[list[dict[str, int]], list[int]]:
    """What is wrong in one index file by itself: header, slots, chains."""
    checker = LogVerifier(b"", [], b"", b"", 1, [])
    checker.add_index(Path(path).read_bytes(), slots, entries)          # type: ignore[arg-type]
    checker.check_chains(0)
    return checker.findings()


# -- the command -----------------------------------------------------------------------------------


def store_audit(spark: Any, store: str | Path, **options: Any) -> Outcome:
    """The job: what `audit` found; options as there."""
    report = audit(spark, store, **options)
    return Outcome(report.status, {
        "store": report.store, "verdict": WORDS[report.status], "figures": report.figures,
        "findings": [asdict(finding) for finding in report.findings]})


def _levels(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...]:
    try:
        return DELAY_LEVELS_MS if value is None else delay_levels_ms(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("store-audit")
@click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--commit-log", "log_folders", multiple=True, metavar="PATH",
              type=click.Path(exists=True, file_okay=False, path_type=Path),
              callback=lambda _c, _p, paths: LogFolders(
                  tuple(path.absolute() for path in paths)) if paths else None,
              help="A folder of the commit log, where it is not in STORE; may be repeated.")
@click.option("--force", is_flag=True,
              help="Also while a broker runs on the store: a moving picture.")
@click.option("--index/--no-index", default=True, show_default=True,
              help="Check the key index; --no-index for a broker that runs without one.")
@click.option("--index-slots", type=click.IntRange(1, 100_000_000), metavar="N",
              help="Hash slots of an index file [default: found out from the files].")
@click.option("--delay-levels", "delay_levels_ms", callback=_levels,
              show_default="stock's 18 levels", help="The broker's messageDelayLevel.")
@click.option("--split-bytes", type=click.IntRange(1 << 16), default=SPLIT_BYTES,
              show_default=True, help="Of the log for one task, about.")
@spark_options
def command(store: Path, master: str, confs: dict[str, str], **options: Any) -> None:
    """
    Check every rule of the format of STORE, which no broker uses meanwhile, on Spark.

    Exit status: 0 sound; 3 the next start mends it and loses nothing acknowledged; 1 damaged;
    2 not checked.
    """
    run("store-audit", lambda spark: store_audit(spark, store, **options), master=master,
        confs=confs)


if __name__ == "__main__":
    command()
