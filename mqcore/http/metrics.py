"""
Every metric of a broker: a row for each, which says its name, type, labels, and where the numbers
come from. docs/metrics.md is made of this table.

Names and labels are those of RocketMQ 5 where the meaning is the same; the rest begin with mqcore_
and have base units. A figure of mqcore/figures.py, and a latency, becomes a metric by itself.
Counters of a process
begin at 0 when it is started again, so they have its name as a label: a sum of several would look
like a counter that was set back.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import mqcore
from mqcore.broker.requests.check_sender import figures as transactions
from mqcore.figures import FIGURES, LATENCIES, Figure, Timing
from mqcore.http import health, text
from mqcore.http.look import Look
from mqcore.http.names import described
from mqcore.layout import WORKER_RUNNING
from mqcore.shm.check_ring import transaction_figures
from mqcore.shm.delays import (
    delay_offsets,
    timer_figures,
    timer_lateness,
    timer_next,
    timer_pending,
)
from mqcore.shm.latencies import EDGES_US
from mqcore.shm.refused import REASONS, refusal
from mqcore.shm.tables import QueueTable
from mqcore.wire.codes import (
    LIVES_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPICS,
)

Value = tuple[tuple[str, ...], float]
SYSTEM_BEGINNINGS = ("RMQ_SYS_", LIVES_TOPIC)
LINES_AT_ONCE = 1_000
LEFT_OUT = ("sent_log_rate", "followed_rate", "turns", "allocations")
STORAGE = ("storage_type", "storage_medium")
DUE_WITHIN_HOURS = (1, 6, 24, 48)
OF_PAIR = ("consumer_group", "topic", "is_retry", "is_system")


@dataclass(frozen=True)
class Metric:
    """
    One metric; `cluster`, `node_type` and `node_id` are labels of each.

    name: as the format 0.0.4 has it, a counter's with _total; labels: the others; values: of one
    look, for each sample what the labels say, and the number; none for what is not in use. times:
    the same of a histogram.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    values: Callable[[Look], Iterable[Value]] = lambda _look: ()
    times: Callable[[Look], Iterable[tuple[tuple[str, ...], text.Distribution]]] | None = None

    def lines(self, look: Look, common: str) -> Iterator[str]:
        """Its samples."""
        if self.times is not None:
            return text.histogram(self.name, common, self.labels, self.times(look))
        return text.samples(self.name, common, self.labels, self.values(look))


def is_system(topic: str) -> bool:
    """Whether a topic belongs to the broker."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_BEGINNINGS)


def _yes(value: bool) -> str:
    return str(value).lower()


def _topics(of: Callable[[Look], dict[str, float]]) -> Callable[[Look], Iterable[Value]]:
    return lambda look: (((topic, _yes(is_system(topic))), value)
                         for topic, value in of(look).items())


def _pairs(
    of: Callable[[Look], dict[tuple[str, str], float]]
) -> Callable[[Look], Iterable[Value]]:
    return lambda look: (
        ((group, topic, _yes(topic.startswith(RETRY_PREFIX)),
          _yes(group.startswith(SYSTEM_GROUP_PREFIX))), value)
        for (group, topic), value in of(look).items())


def _one(of: Callable[[Look], float]) -> Callable[[Look], Iterable[Value]]:
    return lambda look: [((), of(look))]


def _log(of: Callable[[dict[str, int]], int]) -> Callable[[Look], Iterable[Value]]:
    return lambda look: [(("local", "disk"), max(0, of(look.log)))]


def _figure(figure: Figure) -> Metric:
    """Of the table of figures: as many samples as processes of the role that were started."""
    assert figure.role is not None
    name, kind, meaning, factor = described(figure)
    role = figure.role

    def values(look: Look) -> Iterator[Value]:
        for process in look.processes:
            if process.row is role:
                value = look.segment.figure(process.slot, figure.id)
                if value >= 0:                   # -1: it never was
                    yield (process.name,), value if factor == 1 else value * factor

    return Metric(name, kind, ("process",), meaning, values)


def _latency(latency: Timing) -> Metric:
    """Likewise. Bounds are powers of two of microseconds, so each is an edge of a bucket."""
    edges = tuple(edge for edge in EDGES_US
                  if edge >= latency.least_us and edge.bit_count() == 1)
    bounds = tuple(edge / 1_000_000 for edge in edges)

    def times(look: Look) -> Iterator[tuple[tuple[str, ...], text.Distribution]]:
        for name, found in look.watcher.latencies.each(latency.name).items():
            if found.count:
                yield (name,), text.Distribution(
                    bounds, [found.below(edge) for edge in edges], found.count,
                    found.sum_us / 1_000_000)

    return Metric(f"mqcore_{latency.name}_seconds", text.HISTOGRAM, ("process",),
                  f"Time {latency.help}.", times=times)


def _transaction(key: str) -> Callable[[Look], Iterable[Value]]:
    def values(look: Look) -> Iterator[Value]:
        found = transactions(transaction_figures(look.segment), look.now_ms)
        if found:
            yield (), found[key]

    return values


def _delayed(look: Look) -> Iterator[Value]:
    queues = QueueTable(look.segment)
    for level, offset in (delay_offsets(look.segment) or {}).items():
        known = queues.range(SCHEDULE_TOPIC, level - 1)
        if known is not None:
            yield (str(level),), max(known[1] - offset, 0)
    yield ("timer",), timer_pending(look.segment)


def _timed(look: Look) -> Iterator[Value]:
    found = timer_figures(look.segment, look.now_ms)
    for topic, waiting in found["topics"].items():
        yield (topic,), waiting
    if found["others"]:
        yield ("(others)",), found["others"]


def _timed_due(look: Look) -> Iterator[Value]:
    """Sums, as buckets are: an hour that has begun is due within the next one."""
    found = timer_figures(look.segment, look.now_ms)
    if found["pending"]:
        for within in DUE_WITHIN_HOURS:
            end_s = look.now_ms // 1000 + within * 3600
            yield (f"{within}h",), sum(
                waiting for hour, waiting in found["hours"].items() if hour < end_s)
        yield ("any",), found["pending"]


def _next_timed(look: Look) -> Iterator[Value]:
    second = timer_next(look.segment)
    if second:
        yield (), second - look.now_ms / 1000


def _lateness(look: Look) -> Iterator[tuple[tuple[str, ...], text.Distribution]]:
    counts, sum_ms = timer_lateness(look.segment)
    below = list(accumulate(counts))
    if below[-1]:
        yield (), text.Distribution(
            tuple((1 << i) / 1000 for i in range(len(counts) - 1)), below[:-1], below[-1],
            sum_ms / 1000)


def _refused(look: Look) -> Iterator[Value]:
    now = refusal(look.log)
    return (((reason,), int(reason == now)) for reason in REASONS)


def _folded(look: Look) -> Iterator[Value]:
    watcher = look.watcher             # the rows before have counted
    yield ("topics",), watcher.topics.folded
    yield ("groups",), max(watcher.groups.folded, watcher.lags.folded)


def _queues(of: str) -> Callable[[Look], Iterable[Value]]:
    """Of each queue that had a message; its life may end between two samples."""
    def values(look: Look) -> Iterator[Value]:
        lives = look.watcher.lives
        for number in range(lives.queue_count):
            queue = lives.state(number)
            if queue.max_offset:
                yield (queue.topic, str(queue.queue_id)), getattr(queue, of)

    return values


METRICS = (
    Metric("rocketmq_messages_in_total", "counter", ("topic", "is_system"),
           "Messages in the queues of a topic, of earlier runs too; not set back by a restart.",
           _topics(Look.messages_in)),
    Metric("rocketmq_throughput_in_total", "counter", ("topic", "is_system"),
           "Bytes of records that became readable, since the start.", _topics(Look.bytes_in)),
    Metric("rocketmq_messages_out_total", "counter", OF_PAIR,
           "Messages that pulls of a group were given, since the start.",
           _pairs(Look.messages_out)),
    Metric("rocketmq_throughput_out_total", "counter", OF_PAIR,
           "Bytes of the records that pulls of a group were given, since the start.",
           _pairs(Look.bytes_out)),
    Metric("rocketmq_consumer_lag_messages", "gauge", OF_PAIR,
           "Messages that a group has not committed, as of the last save of its offsets.",
           _pairs(lambda look: look.lag)),
    Metric("rocketmq_consumer_lag_latency", "gauge", OF_PAIR,
           "Milliseconds since the oldest message was stored that a group has not committed.",
           _pairs(lambda look: look.lag_ms)),
    Metric("mqcore_consumer_offsets_readable", "gauge", (),
           "0: the files of offsets are too long to be read for a scrape, and no lag is shown.",
           _one(lambda look: int(look.watcher.offsets.rows() is not None))),
    Metric("rocketmq_send_to_dlq_messages_total", "counter", ("consumer_group",),
           "Messages in the dead letters of a group, of earlier runs too.",
           lambda look: (((group,), count) for group, count in look.dead_letters().items())),
    Metric("rocketmq_half_messages", "gauge", (),
           "Half messages of transactions that are not ended.", _transaction("pending")),
    Metric("mqcore_transaction_oldest_seconds", "gauge", (),
           "Age of the oldest open half message.", _transaction("oldest_s")),
    Metric("mqcore_transaction_checks_total", "counter", (),
           "Questions to producers about transactions, since the start.", _transaction("checks")),
    Metric("mqcore_transaction_given_up_total", "counter", (),
           "Half messages that were asked about too often, since the start.",
           _transaction("given_up")),
    Metric("mqcore_transaction_rounds_total", "counter", (),
           "Looks at all half messages, since the start.", _transaction("rounds")),
    Metric("rocketmq_timing_messages", "gauge", ("level",),
           "Delayed messages that wait for their time; timer: for one of their own.", _delayed),
    Metric("mqcore_timed_messages", "gauge", ("topic",),
           "Messages that wait for a time of their own; (others): of topics without a row.",
           _timed),
    Metric("mqcore_timed_due_messages", "gauge", ("within",),
           "The same by when they are due, in whole hours from now on, each with those before it.",
           _timed_due),
    Metric("mqcore_timed_next_seconds", "gauge", (),
           "Until the second of the next message with a time of its own; below 0: it is late.",
           _next_timed),
    Metric("mqcore_timed_late_seconds", text.HISTOGRAM, (),
           "Time from when a message was due until it was handed over.", times=_lateness),
    Metric("rocketmq_storage_size", "gauge", STORAGE, "Bytes of the commit log.",
           _log(lambda log: log["published"] - log["first"])),
    Metric("rocketmq_storage_flush_behind_bytes", "gauge", STORAGE,
           "Bytes of the commit log that are not on the disk.",
           _log(lambda log: log["published"] - log["flushed"])),
    Metric("rocketmq_storage_dispatch_behind_bytes", "gauge", STORAGE,
           "Bytes of the commit log that no consumer can see yet.",
           _log(lambda log: log["published"] - log["dispatched"])),
    Metric("rocketmq_topic_number", "gauge", (), "Topics.",
           _one(lambda look: look.watcher.tables.counts()[0])),
    Metric("rocketmq_consumer_group_number", "gauge", (), "Subscription groups.",
           _one(lambda look: look.watcher.tables.counts()[1])),
    Metric("rocketmq_broker_permission", "gauge", (), "2: it takes sends, 4: pulls, 6: both.",
           _one(lambda look: look.settings.broker.permission)),
    Metric("mqcore_writes_refused", "gauge", ("reason",),
           "1: sends are refused for this reason.", _refused),
    Metric("mqcore_disk_free_bytes", "gauge", ("folder",), "Free for the broker, by folder.",
           lambda look: (((folder,), free) for folder, (free, _) in look.disks.items())),
    Metric("mqcore_disk_used_ratio", "gauge", ("folder",), "Used share of the disk, 0 to 1.",
           lambda look: (((folder,), used) for folder, (_, used) in look.disks.items())),
    Metric("mqcore_process_up", "gauge", ("process",), "1: the process runs.",
           lambda look: (((one.name,), int(one.state == WORKER_RUNNING))
                         for one in look.processes)),
    Metric("mqcore_process_starts_total", "counter", ("process",),
           "How often the process was started.",
           lambda look: (((one.name,), one.starts) for one in look.processes)),
    Metric("mqcore_process_beat_age_seconds", "gauge", ("process",),
           "Since the process last turned; usual is 1 or less.",
           lambda look: (((one.name,), one.age_ms(look.now_ms) / 1000)
                         for one in look.processes)),
    Metric("mqcore_process_cpu_seconds_total", "counter", ("process",),
           "Time of a processor that the process has used.",
           lambda look: (((one.name,), one.cpu_s) for one in look.processes if one.doing)),
    Metric("mqcore_process_resident_bytes", "gauge", ("process",),
           "Memory of the process, what it shares with others too.",
           lambda look: (((one.name,), one.resident_bytes)
                         for one in look.processes if one.doing)),
    *(_figure(figure) for figure in FIGURES
      if figure.role is not None and figure.name not in LEFT_OUT),
    *map(_latency, LATENCIES),
    Metric("mqcore_build_info", "gauge", ("version",), "1.",
           lambda look: [((mqcore.__version__,), 1)]),
    Metric("mqcore_ready", "gauge", (), "1: /readyz says that clients are served.",
           _one(lambda look: int(all(check.ok for check in health.ready(
               look.segment, look.settings, look.now_ms))))),
    Metric("mqcore_metrics_folded", "gauge", ("of",),
           "Topics, and pairs of group and topic, that are summed up as _other.", _folded),
    Metric("mqcore_scrape_seconds", "gauge", (), "Duration of this scrape, up to this line.",
           _one(lambda look: time.perf_counter() - look.began)),
)

# Only at /metrics/queues: as many series as there are queues.
QUEUES = (
    Metric("mqcore_queue_min_offset", "gauge", ("topic", "queue"),
           "Offset of the first message of a queue.", _queues("min_offset")),
    Metric("mqcore_queue_max_offset", "gauge", ("topic", "queue"),
           "Offset that the next message of a queue gets.", _queues("max_offset")),
)


def scrape(look: Look, metrics: Iterable[Metric], content_type: str) -> Iterator[str]:
    """The text of a scrape, in pieces; a metric without a sample is left out."""
    common = ",".join((
        text.label("cluster", look.settings.broker.cluster), text.label("node_type", "broker"),
        text.label("node_id", look.settings.broker.name)))
    lines: list[str] = []
    for metric in metrics:
        head = text.head(metric.name, metric.kind, metric.help, content_type)
        for line in metric.lines(look, common):
            lines.append(head + line)
            head = ""
            if len(lines) >= LINES_AT_ONCE:
                yield "".join(lines)
                lines.clear()
    yield "".join((*lines, text.end(content_type)))
