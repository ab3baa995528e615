"""
What processes count: a row for each figure, and for each histogram of how long things take.

A process counts in its own slot of the shared memory (WorkerSlot.figures): natively at the place
FIGURE_<NAME>, a constant that setup.py makes of this table (figures.pxd), in Python through
mqcore/shm/figure_slots.py. Who shows figures finds them here by name. A new one is a row with the
next free id of its role, and the line that counts. Histograms have places of their own beside the
slots (LATENCY_<NAME>, mqcore/shm/latency.pxd).
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mqcore.participants import (
    COORDINATOR,
    DISPATCHER,
    HA_MASTER,
    HA_SLAVE,
    NAMESRV,
    PARTICIPANTS,
    SCHEDULER,
    SERVING,
    SUPERVISOR,
    WRITER,
    Participant,
)

PLACES = 44                      # figures of one slot; native: FIGURE_COUNT
LATENCY_PLACES = 3               # histograms of one slot; native: LATENCY_COUNT


@dataclass(frozen=True)
class Figure:
    """
    One figure.

    id     its place among the figures of a slot; those of different roles may share one
    role   who counts it; None: every process
    unit   "1", "bytes", "us", "ms"
    shown  where `mqcore status` shows it: section.key; empty: nowhere
    level  it goes up and down; else it only grows, from 0 at the start of its process
    native a constant is made of it; False: Python alone counts it
    """

    id: int
    name: str
    role: Participant | None
    unit: str
    help: str
    shown: str = ""
    level: bool = False
    native: bool = True

    @property
    def constant(self) -> str:
        return f"FIGURE_{self.name.upper()}"


FIGURES = (
    Figure(0, "connections", SERVING, "1", "connections that are open",
           "serving.connections", level=True),
    Figure(1, "sends", SERVING, "1", "messages that were handed to the writer"),
    Figure(2, "pulls", SERVING, "1", "pulls that were taken", "serving.pulls"),
    Figure(3, "pulled_messages", SERVING, "1", "messages that pulls handed out",
           "messages.pulled"),
    Figure(4, "held_pulls", SERVING, "1", "pulls that wait for a message",
           "serving.held_pulls", level=True),
    Figure(5, "forwarded", SERVING, "1", "requests that went to the coordinator",
           "serving.forwarded"),
    Figure(6, "bad_frames", SERVING, "1", "connections closed for what came over them",
           "serving.closed_for_nonsense"),
    Figure(7, "bytes_in", SERVING, "bytes", "read from connections"),
    Figure(8, "bytes_out", SERVING, "bytes", "written to connections"),
    Figure(9, "refused", SERVING, "1", "sends that could not be stored",
           "serving.refused_sends"),
    Figure(10, "limited_connections", SERVING, "1", "connections that [limits] refused",
           "serving.limited_connections"),
    Figure(11, "limited_requests", SERVING, "1",
           "times that [limits] refused a send, or let a request wait", "serving.limited_requests"),
    Figure(12, "access_refused", SERVING, "1", "requests that access control refused",
           "serving.refused_by_acl"),
    Figure(13, "tls_connections", SERVING, "1", "connections with TLS that are open",
           "tls.connections", level=True),
    Figure(14, "tls_handshakes", SERVING, "1", "TLS handshakes that were done", "tls.handshakes"),
    Figure(15, "tls_failures", SERVING, "1", "TLS handshakes that failed, or were not done in time",
           "tls.failed_handshakes"),
    Figure(0, "namesrv_tls_connections", NAMESRV, "1",
           "connections with TLS to the embedded name server", "tls.namesrv_connections",
           level=True),
    Figure(1, "namesrv_tls_handshakes", NAMESRV, "1", "TLS handshakes that it did",
           "tls.namesrv_handshakes"),
    Figure(2, "namesrv_tls_failures", NAMESRV, "1", "TLS handshakes with it that failed",
           "tls.namesrv_failed_handshakes"),
    Figure(3, "namesrv_access_refused", NAMESRV, "1",
           "requests that access control refused at the embedded name server",
           "namesrv.refused_by_acl"),
    Figure(4, "namesrv_unserved_requests", NAMESRV, "1",
           "requests whose code the embedded name server does not support",
           "namesrv.unsupported_requests", native=False),
    Figure(5, "namesrv_connections", NAMESRV, "1", "connections to the name server that are open",
           level=True, native=False),
    Figure(6, "namesrv_brokers", NAMESRV, "1", "brokers that are registered, by name", level=True,
           native=False),
    Figure(7, "namesrv_topics", NAMESRV, "1", "topics with a route", level=True, native=False),
    Figure(8, "namesrv_requests", NAMESRV, "1", "requests that the name server read",
           native=False),
    Figure(0, "appends", WRITER, "1", "messages that were stored", "messages.stored"),
    Figure(1, "appended_bytes", WRITER, "bytes", "of the records of these",
           "messages.stored_bytes"),
    Figure(2, "flushes", WRITER, "1", "times that the log was brought to disk"),
    Figure(3, "batches", WRITER, "1", "turns that stored something"),
    Figure(4, "flush_timeouts", WRITER, "1", "answers that said FLUSH_DISK_TIMEOUT",
           "log.flush_timeouts"),
    Figure(5, "pool_bytes", WRITER, "bytes", "in the transient pool and in no file yet",
           "log.pool_waiting_bytes", level=True),
    Figure(6, "not_replicated", WRITER, "1",
           "answers that said FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE", "log.not_replicated"),
    Figure(0, "dispatched", DISPATCHER, "1", "records that got their queue entry"),
    Figure(1, "keys", DISPATCHER, "1", "keys that were added to the index"),
    Figure(0, "delivered", SCHEDULER, "1", "delayed messages that were delivered",
           "delayed.delivered"),
    Figure(1, "skipped", SCHEDULER, "1", "delayed messages that cannot be delivered",
           "delayed.skipped"),
    Figure(2, "reputs", SCHEDULER, "1", "deliveries that were refused and are tried again",
           "delayed.refused"),
    Figure(0, "longest_turn_us", COORDINATOR, "us",
           "longest that one request kept the coordinator from all others",
           "coordinator.longest_turn_us", level=True),
    Figure(0, "open_to_others", SUPERVISOR, "1",
           "1: other hosts reach a port of it, and nothing asks who they are",
           "access.open_to_others", level=True),
    Figure(1, "access_refused_there", COORDINATOR, "1",
           "requests that access control refused in the coordinator", "coordinator.refused_by_acl"),
    Figure(2, "tables_age_ms", COORDINATOR, "ms",
           "since a slave asked its master for topics, groups and offsets, and got them; -1: never",
           "replication.tables_age_ms", level=True),
    Figure(3, "offsets_given_back", COORDINATOR, "1",
           "offsets that were committed to a slave and went to its master",
           "replication.offsets_given_back"),
    Figure(4, "overtaken_messages", COORDINATOR, "1",
           "messages that rejoining has cut and kept in STORE/overtaken, as of the start",
           "replication.overtaken_messages", level=True, native=False),
    Figure(5, "unserved_requests", COORDINATOR, "1",
           "requests whose code the broker does not support", "coordinator.unsupported_requests",
           native=False),
    Figure(6, "registered_namesrvs", COORDINATOR, "1",
           "name servers that took the last registration", "coordinator.registered_namesrvs",
           level=True, native=False),
    Figure(0, "slaves", HA_MASTER, "1", "slaves that follow the log",
           "replication.slaves", level=True),
    Figure(1, "slave_lag_bytes", HA_MASTER, "bytes", "of the log that the last of them lacks",
           "replication.slave_lag_bytes", level=True),
    Figure(2, "slave_lag_ms", HA_MASTER, "ms", "since the last of them had all of it",
           "replication.slave_lag_ms", level=True),
    Figure(3, "sent_log_bytes", HA_MASTER, "bytes", "of the log that slaves were sent",
           "replication.sent_bytes"),
    Figure(4, "refused_slaves", HA_MASTER, "1",
           "connections of slaves that were closed for what came over them, or had no place",
           "replication.refused_slaves"),
    Figure(5, "slave_lag_messages", HA_MASTER, "1",
           "that the last of them lacks, as far as the log has checksums",
           "replication.slave_lag_messages", level=True, native=False),
    Figure(6, "sent_log_rate", HA_MASTER, "bytes", "of the log that slaves were sent in a second",
           "replication.sent_bytes_per_s", level=True, native=False),
    Figure(7, "epoch", HA_MASTER, "1", "epoch that slaves are told, 0: none",
           "replication.epoch", level=True, native=False),
    Figure(0, "master_link", HA_SLAVE, "1", "1: it is connected to its master",
           "replication.master_link", level=True),
    Figure(1, "master_silent_ms", HA_SLAVE, "ms", "since the master said something",
           "replication.master_silent_ms", level=True),
    Figure(2, "followed_bytes", HA_SLAVE, "bytes", "of the master's log that came",
           "replication.received_bytes"),
    Figure(3, "unstored_bytes", HA_SLAVE, "bytes", "of these that are not in the log yet",
           "replication.unstored_bytes", level=True),
    Figure(4, "master_links", HA_SLAVE, "1", "times that it was connected to its master",
           "replication.master_links"),
    Figure(5, "followed_rate", HA_SLAVE, "bytes", "of the master's log that came in a second",
           "replication.received_bytes_per_s", level=True, native=False),
    Figure(6, "followed_epoch", HA_SLAVE, "1",
           "epoch that the master has told, 0: none, as of stock",
           "replication.followed_epoch", level=True, native=False),
    Figure(42, "turns", None, "1", "returns to the interpreter"),
    Figure(43, "allocations", None, "1", "objects made, where that is counted"),
)


@dataclass(frozen=True)
class Timing:
    """
    One histogram. title: of its diagram; least_us: what is below it is not told apart; the clock of
    its times has no more.
    """

    id: int
    name: str
    role: Participant
    title: str
    help: str
    least_us: int = 64

    @property
    def constant(self) -> str:
        return f"LATENCY_{self.name.upper()}"


OF_STORE_TIMES_US = 1024         # these are in milliseconds

LATENCIES = (
    Timing(0, "send", SERVING, "Sends, reading to answer",
           "from the reading of a send to its answer, when it was stored"),
    Timing(1, "pull", SERVING, "Pulls that brought messages",
           "from the reading of a pull, or the end of its waiting, to the answer that brought "
           "messages"),
    Timing(2, "delivery", SERVING, "Delivery, storing to pull",
           "from the storing of a message to a pull's answer with it", OF_STORE_TIMES_US),
    Timing(0, "flush", WRITER, "Syncs of the log", "of a sync of the commit log to the disk"),
    Timing(1, "slave_wait", WRITER, "Waits for slaves",
           "that sends, stored in one turn, wait for slaves"),
    Timing(0, "dispatch", DISPATCHER, "Dispatch, storing to queue",
           "from the storing of a message to its entry in its queue, where consumers see it"),
    Timing(0, "client_request", COORDINATOR, "Coordinator: heartbeats, locks, offsets",
           "of a request of a client that the coordinator answers: heartbeats, members, locks, "
           "offsets"),
    Timing(1, "message_request", COORDINATOR, "Coordinator: retries, replies, new topics",
           "that the coordinator takes over a send, a pull, a retry or a reply"),
    Timing(2, "admin_request", COORDINATOR, "Coordinator: administration",
           "of any other request that the coordinator answers"),
)


def trouble(figures: Iterable[Figure | Timing], count: int = PLACES) -> str:
    """What is wrong with a table: a place or a name that is given twice, or is none; else ''."""
    places: dict[tuple[str, int], str] = {}
    names: set[str] = set()
    for figure in figures:
        if not 0 <= figure.id < count:
            return f"{figure.name}: id {figure.id}, expected 0 to {count - 1}"
        for role in PARTICIPANTS if figure.role is None else (figure.role,):
            other = places.setdefault((role.name, figure.id), figure.name)
            if other != figure.name:
                return f"{figure.name} has the id {figure.id} of {other}"
        if figure.name in names:
            return f"{figure.name} is there twice"
        names.add(figure.name)
    return ""


def declarations() -> str:
    """The places as native constants: figures.pxd."""
    wrong = trouble(FIGURES) or trouble(LATENCIES, LATENCY_PLACES)
    if wrong:
        raise ValueError(wrong)
    lines = ["# Made from figures.py by setup.py.", "cdef enum:", f"    FIGURE_COUNT = {PLACES}"]
    lines += [f"    {figure.constant} = {figure.id}" for figure in FIGURES if figure.native]
    lines += [f"    LATENCY_COUNT = {LATENCY_PLACES}"]
    lines += [f"    {latency.constant} = {latency.id}" for latency in LATENCIES]
    return "\n".join(lines) + "\n"
