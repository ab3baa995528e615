"""Forwarded frames: from a ring's record to the rules, and the answer back."""
from __future__ import annotations

import logging
from collections.abc import Callable, Container, Generator
from dataclasses import replace
from functools import partial

from mqcore.broker.handlers import Broker
from mqcore.broker.looks import LOOKS
from mqcore.broker.request import (
    Answer,
    Outcome,
    OutcomeJob,
    PendingOutcome,
    Redo,
    Request,
    answer_parts,
)
from mqcore.shm.coordinator_rings import CoordinatorRings, Forwarded
from mqcore.turns import Job
from mqcore.wire import command as wire
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.workers.coordinator.request_times import RequestTimes

log = logging.getLogger("mqcore.coordinator")


class ForwardedRequests:
    """
    Requests and responses of clients, each when its turn has come (mqcore.turns).

    gone: connections that ended before earlier requests were answered. urgent_said: others wait for
    an answer that was given; the sender of the answers sets it back.
    """

    def __init__(
        self, broker: Broker, rings: CoordinatorRings, gone: Container[int],
        now_ms: Callable[[], int], times: RequestTimes,
    ) -> None:
        self._broker = broker
        self._rings = rings
        self._gone = gone
        self._now_ms = now_ms
        self._times = times
        self.urgent_said = False

    def begin(self, item: Forwarded) -> Job | None:
        """A frame whose turn it is: answered, or the job that is left."""
        try:
            command = wire.decode(item.frame)
            command.body = item.body or command.body     # a long one is not copied
        except wire.FrameError as error:
            log.warning("connection from %s closed: %s", item.remote, error)
            self._rings.count_done(item.connection, item.shares, item.size)
            self._rings.drop(item.connection, item.parked)
            self._rings.close(item.connection)
            return None
        if command.is_response:
            self._take_response(item, command)
            return None
        return self._handle(item, command)

    def _take_response(self, item: Forwarded, command: wire.Command) -> None:
        self._finish_unanswered(item)
        self._broker.handle_response(item.connection, command)

    def _handle(self, item: Forwarded, command: wire.Command) -> Job | None:
        """One request: now, or the job that is left."""
        if item.connection in self._gone and command.code in LOOKS:
            self._finish_unanswered(item)
            return None
        request = Request(item.connection, item.remote, command, self._now_ms(), item.fast_port,
                          item.body_size, passed=item.passed)
        try:
            outcome = None if self._is_late(item, command) else self._broker.begin(request)
        except Exception as error:       # the boundary of this process: one request, not all
            outcome = self._failed(request, error)
        if isinstance(outcome, Generator):
            return self._go_on(item, request, outcome)
        self._finish(item, request, outcome)
        return None

    def _go_on(self, item: Forwarded, request: Request, job: OutcomeJob) -> Job:
        try:
            outcome = yield from self._while_asked(item, request, job)
        except Exception as error:       # as above
            outcome = self._failed(request, error)
        self._finish(item, request, outcome)

    def _while_asked(self, item: Forwarded, request: Request, job: OutcomeJob) -> OutcomeJob:
        """A job to its end; a look ends when its connection is gone."""
        while True:
            try:
                next(job)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            if item.connection in self._gone and request.command.code in LOOKS:
                job.close()
                return None
            yield

    def _is_late(self, item: Forwarded, command: wire.Command) -> bool:
        """Whether it is a heartbeat of a connection whose serving process has ended."""
        return command.code == RequestCode.HEART_BEAT and self._rings.is_stale(item.connection)

    def _failed(self, request: Request, error: Exception) -> Answer:
        log.error("request %d from %s failed", request.command.code, request.remote,
                  exc_info=error)
        return Answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    def _finish(self, item: Forwarded, request: Request, outcome: Outcome) -> None:
        command = request.command
        if isinstance(outcome, PendingOutcome):
            if not outcome.known:
                outcome.then = partial(self._finish, item, request)
                return
            outcome = outcome.outcome
        self._times.end(command.code, item.taken_us)
        if isinstance(outcome, Redo):
            self._rings.count_done(item.connection, item.shares, item.size)
            self._rings.redo(item.connection, item.parked, redo_header(command, outcome))
            return
        parts = None if outcome is None or item.repeated else answer_parts(request, outcome)
        if parts is None:
            self._finish_unanswered(item)
            return
        self._rings.count_done(item.connection, item.shares, item.size)
        self._rings.send_parts(item.connection, parts, item.parked)
        self.urgent_said |= item.urgent

    def _finish_unanswered(self, item: Forwarded) -> None:
        self._rings.count_done(item.connection, item.shares, item.size)
        if item.parked:
            self._rings.drop(item.connection, item.parked)


def redo_header(command: wire.Command, redo: Redo) -> bytes:
    """The header in plain form, with another topic or queue if the rules say so; without body."""
    ext = dict(command.ext or {})
    short = command.code != RequestCode.SEND_MESSAGE and "b" in ext
    if redo.topic is not None:
        ext["b" if short else "topic"] = redo.topic
    if redo.queue_id is not None:
        ext["e" if short else "queueId"] = str(redo.queue_id)
    frame = wire.encode(replace(command, ext=ext, body=b""))
    return frame[8:]
