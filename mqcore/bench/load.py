"""Runs one load and says what it measured: warm-up, the measured part, and the CPU it cost."""
from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mqcore.bench.consume import ConsumeLoad
from mqcore.bench.control import (
    BenchError,
    Target,
    open_connections,
    queue_bounds,
    stored_count,
    wait_for_stored,
)
from mqcore.bench.cpu import CpuMeter, machine_cpu_seconds
from mqcore.bench.e2e import EndToEndLoad
from mqcore.bench.engine import LoadEngine
from mqcore.bench.generator import ProduceLoad
from mqcore.bench.templates import (
    BODY_STAMP_SIZE,
    Template,
    commit_template,
    pull_template,
    send_template,
)
from mqcore.wire.command import Codec

SLICE_S = 0.25                      # between two looks at the keyboard and at the progress
STALL_S = 15.0                      # this long without one completed item ends the run
DRAIN_S = 30.0
OPEN_LOOP_DEPTH = 4096              # per connection: how far answers may lag behind the rate
OUTPUT_LIMIT_BYTES = 1 << 22
COUNT_MAX = 1 << 60


@dataclass
class Report:
    """What one load measured. Times are microseconds, CPU is per completed item."""

    name: str
    items: int
    seconds: float
    rate_per_s: float
    latency_us: dict[str, float] = field(default_factory=dict)
    errors: int = 0
    errors_by_code: dict[int, int] = field(default_factory=dict)
    first_error: str = ""
    lost: int = 0
    broker_cpu_us: float | None = None
    broker_resident_bytes: int | None = None
    own_cpu_us: float = 0.0
    others_cpu_share: float | None = None       # of all cores, by processes outside this run
    reads: int = 0
    writes: int = 0
    details: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Span:
    """How long to measure: a warm-up count, then `count` items or `seconds`, whichever is given."""

    count: int | None = None
    seconds: float | None = None
    warmup: int = 0

    def __post_init__(self) -> None:
        if (self.count is None) == (self.seconds is None):
            raise ValueError("span: expected either a count or seconds")
        if (self.count or 1) <= 0 or (self.seconds or 1) <= 0 or self.warmup < 0:
            raise ValueError("span: count and seconds have to be positive, warmup not negative")


def run_until(
    engine: LoadEngine, target: int | None, seconds: float | None, *, idle: bool = False
) -> None:
    """
    Turn an engine until it has completed `target` items, `seconds` have passed, or it is idle.

    Raises BenchError when nothing completes for STALL_S or every connection is gone.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    progress, progressed_at = engine.completed, time.monotonic()
    while target is None or engine.completed < target:
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            return
        slice_s = SLICE_S if deadline is None else min(SLICE_S, deadline - now)
        engine.run(completed_target=-1 if target is None else target, seconds=slice_s,
                   until_idle=idle)
        if idle and engine.in_flight == 0:
            return
        if engine.open_count == 0:
            raise BenchError(f"the broker closed every connection: {engine.results()}")
        if engine.completed != progress:
            progress, progressed_at = engine.completed, time.monotonic()
        elif time.monotonic() - progressed_at > STALL_S:
            raise BenchError(f"nothing completed for {STALL_S:g} s: {engine.results()}")


class Measurement:
    """The measured part of a run: clocks at its start and end, and the report made of them."""

    def __init__(self, name: str, broker_pids: Sequence[int]) -> None:
        self._name = name
        self._meter = CpuMeter(broker_pids) if broker_pids else None

    def start(self, engine: LoadEngine) -> None:
        engine.reset()
        if self._meter:
            self._meter.start()
        self._completed = engine.completed
        self._own = time.process_time()
        self._machine = machine_cpu_seconds()
        self._began = time.monotonic()

    def finish(self, engine: LoadEngine) -> Report:
        seconds = time.monotonic() - self._began
        own = time.process_time() - self._own
        broker = self._meter.read() if self._meter else None
        others = machine_cpu_seconds() - self._machine - own - (broker or 0.0)
        cores = os.cpu_count() or 1
        results = engine.results()
        items = engine.completed - self._completed
        each = 1e6 / items if items else 0.0
        return Report(
            name=self._name, items=items, seconds=seconds, rate_per_s=items / seconds,
            latency_us=results["latency"], errors=results["errors"],
            errors_by_code=results["errors_by_code"], first_error=results["first_error_header"],
            lost=results["lost"], own_cpu_us=own * each, reads=results["reads"],
            writes=results["writes"],
            broker_cpu_us=None if broker is None else broker * each,
            others_cpu_share=None if broker is None else max(0.0, others / seconds / cores),
            broker_resident_bytes=self._meter.resident() if self._meter else None,
            details={key: results[key] for key in ("unexpected", "bad_frames", "server_requests")},
        )


@dataclass(frozen=True)
class ProduceOptions:
    """A produce load; see `mqcore bench produce --help` for what each means."""

    span: Span
    connections: int = 8
    depth: int = 32
    size: int = 128
    rate: float = 0.0
    oneway: bool = False
    keys: bool = False
    tags: str | None = "TagA"
    codec: Codec = Codec.JSON
    heartbeat: bool = True
    transactional: bool = False         # half messages, each committed when it is stored
    undecided: bool = False             # half messages that nobody ends
    delay_level: int = 0
    beforehand: bool = False            # signed once, not for each message
    verify: bool = True                 # one-way: ask the queues how many messages arrived
    broker_pids: tuple[int, ...] = ()


def make_body(size: int) -> bytes:
    """Bytes that do not compress and are not all the same."""
    return secrets.token_bytes(size)


def produce(target: Target, options: ProduceOptions) -> Report:
    """Send messages to `target` and measure it; raises BenchError when answers stop."""
    body = make_body(options.size)

    def rows(oneway: bool) -> list[list[Template]]:
        return [
            [send_template(target.topic, queue, body, keys=options.keys, tags=options.tags,
                           oneway=oneway, codec=options.codec,
                           transactional=options.transactional or options.undecided,
                           delay_level=options.delay_level, credentials=target.credentials,
                           beforehand=options.beforehand)
             for queue in range(target.queue_count)]
            for _ in range(options.connections)
        ]

    if options.transactional and (options.oneway or options.codec is not Codec.JSON):
        raise ValueError("transactional: expected answered sends with JSON headers")
    counted = (options.oneway or options.transactional) and options.verify
    stored_before = stored_count(target) if counted else 0
    sockets = open_connections(target, options.connections, producer="mqcore_bench",
                               with_heartbeat=options.heartbeat)
    engine = ProduceLoad(
        sockets, OUTPUT_LIMIT_BYTES, rows(False),
        max(options.depth, OPEN_LOOP_DEPTH) if options.rate else options.depth, options.rate,
        rows(True) if options.oneway else None,
        commit_template(credentials=target.credentials) if options.transactional else None,
    )
    try:
        report = _measure_produce(engine, options)
        begun = engine.results()["begun"]
    finally:
        engine.close()
    if counted:         # nobody tells the sender of a one-way message that it was refused
        arrived = wait_for_stored(target, stored_before + begun) - stored_before
        report.lost += begun - arrived
    return report


def _measure_produce(engine: ProduceLoad, options: ProduceOptions) -> Report:
    span = options.span
    engine.allow(COUNT_MAX if span.count is None else span.warmup + span.count)
    run_until(engine, span.warmup, None)
    measurement = Measurement("produce", options.broker_pids)
    measurement.start(engine)
    target = None if span.count is None else span.warmup + span.count
    run_until(engine, target, span.seconds)
    if not options.oneway:
        report = measurement.finish(engine)
        engine.allow(0)
        run_until(engine, None, DRAIN_S, idle=True)
        return report
    sent = engine.completed                 # nobody has answered: wait until all of it has arrived
    engine.allow(0)
    engine.finish_oneway()
    run_until(engine, sent + engine.open_count, DRAIN_S)
    report = measurement.finish(engine)
    report.latency_us = {}
    return report


@dataclass(frozen=True)
class ConsumeOptions:
    """A consume load; see `mqcore bench consume --help`."""

    count: int | None = None            # None: everything that is stored, once
    connections: int = 8
    depth: int = 4
    batch: int = 32
    warmup: int = 0
    group: str = "mqcore_bench_consumer"
    codec: Codec = Codec.JSON
    heartbeat: bool = True
    broker_pids: tuple[int, ...] = ()


def cut_slices(
    bounds: list[tuple[int, int]], batch: int, readers: int
) -> list[tuple[int, int, int]]:
    """
    (queue, begin, end) parts of all queues, in an order that spreads neighbours over the queues.

    A part is a multiple of `batch`, so that whole batches fit, and small enough that each of
    `readers` gets several.
    """
    total = sum(high - low for low, high in bounds)
    batches = max(1, min(128, total // (batch * readers * 4)))
    step = batch * batches
    parts: list[tuple[int, int, int]] = []
    level = 0
    while True:
        row = [
            (queue, low + level * step, min(low + (level + 1) * step, high))
            for queue, (low, high) in enumerate(bounds) if low + level * step < high
        ]
        if not row:
            return parts
        parts += row
        level += 1


def consume(target: Target, options: ConsumeOptions) -> Report:
    """Pull what the topic holds and measure it; raises BenchError when messages are missing."""
    bounds = queue_bounds(target)
    stored = sum(high - low for low, high in bounds)
    if stored == 0:
        raise BenchError(f"topic {target.topic}: holds no messages to consume")
    wanted = stored if options.count is None else options.count
    repeats = options.warmup + wanted > stored
    version_ms = int(time.time() * 1000)
    templates = [
        pull_template(target.topic, queue, group=options.group, batch=options.batch,
                      version_ms=version_ms, codec=options.codec,
                      credentials=target.credentials)
        for queue in range(target.queue_count)
    ]
    slices = cut_slices(bounds, options.batch, options.connections * options.depth)
    sockets = open_connections(
        target, options.connections, producer="mqcore_bench", consumer=options.group,
        with_heartbeat=options.heartbeat, version_ms=version_ms)
    engine = ConsumeLoad(sockets, OUTPUT_LIMIT_BYTES, templates, slices, options.depth, repeats)
    try:
        engine.allow(1)
        run_until(engine, options.warmup, None, idle=not repeats)
        measurement = Measurement("consume", options.broker_pids)
        measurement.start(engine)
        run_until(engine, options.warmup + wanted, None, idle=not repeats)
        report = measurement.finish(engine)
        engine.allow(0)
        run_until(engine, None, DRAIN_S, idle=True)
        _check_received(engine, options.warmup + wanted)
        return report
    finally:
        engine.close()


def _check_received(engine: ConsumeLoad, wanted: int) -> None:
    results = engine.results()
    if engine.completed < wanted or results["bad_records"] or results["gaps"]:
        raise BenchError(f"received {engine.completed} of {wanted} messages: {results}")


@dataclass(frozen=True)
class EndToEndOptions:
    """An end-to-end load; see `mqcore bench e2e --help`."""

    span: Span
    rate: float = 1000.0
    producers: int = 4
    consumers: int = 4
    size: int = 128
    batch: int = 32
    suspend_ms: int = 15_000
    group: str = "mqcore_bench_e2e"
    codec: Codec = Codec.JSON
    heartbeat: bool = True
    broker_pids: tuple[int, ...] = ()


def end_to_end(target: Target, options: EndToEndOptions) -> Report:
    """Send at a rate, receive by held pulls; raises BenchError when a message does not arrive."""
    if options.size < BODY_STAMP_SIZE:
        raise ValueError(f"size {options.size}: expected at least {BODY_STAMP_SIZE}")
    body = make_body(options.size)
    version_ms = int(time.time() * 1000)
    queues = range(target.queue_count)
    sends = [send_template(target.topic, queue, body, codec=options.codec,
                           credentials=target.credentials) for queue in queues]
    pulls = [
        pull_template(target.topic, queue, group=options.group, batch=options.batch,
                      suspend_ms=options.suspend_ms, version_ms=version_ms, codec=options.codec,
                      credentials=target.credentials)
        for queue in queues
    ]
    offsets = [high for _, high in queue_bounds(target)]
    sockets = open_connections(
        target, options.producers + options.consumers, producer="mqcore_bench",
        consumer=options.group, with_heartbeat=options.heartbeat, version_ms=version_ms)
    engine = EndToEndLoad(sockets, OUTPUT_LIMIT_BYTES, sends, pulls, offsets, options.producers,
                          options.rate, secrets.randbits(62))
    try:
        return _measure_end_to_end(engine, options)
    finally:
        engine.close()


def _measure_end_to_end(engine: EndToEndLoad, options: EndToEndOptions) -> Report:
    span = options.span
    engine.allow(COUNT_MAX if span.count is None else span.warmup + span.count)
    run_until(engine, span.warmup, None)
    # -- several may have come at once: those beyond the warm-up are not measured, and sent again
    end = None if span.count is None else engine.completed + span.count
    if end is not None:
        engine.allow(end)
    measurement = Measurement("e2e", options.broker_pids)
    measurement.start(engine)
    run_until(engine, end, span.seconds)
    report = measurement.finish(engine)
    engine.allow(0)
    run_until(engine, engine.sent_count, DRAIN_S)
    results = engine.results()
    if engine.completed != engine.sent_count or results["bad_records"] or results["gaps"]:
        raise BenchError(f"sent {engine.sent_count}, received {engine.completed}: {results}")
    return report
