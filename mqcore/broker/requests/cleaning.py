"""
Removing topics, queues and expired files by request (broker.md 9.6, store.md 3.7, 6.6).

RocketMQ 4.9.8: AdminBrokerProcessor, DefaultMessageStore. Two things differ. Deleting a topic
removes only that topic's queues; 4.9.8 also removes those of every other topic that has no config
at that moment, which CLEAN_UNUSED_TOPIC does here, and only when it is asked for. And it removes
the topic's consumer offsets, as 5.x does: they would hide messages of a topic that is made again.
"""
from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from mqcore.broker.core import Core
from mqcore.broker.request import (
    ROWS_A_TURN,
    Answer,
    Fields,
    Outcome,
    OutcomeJob,
    Request,
    answer_frame,
    answers,
    refused,
)
from mqcore.broker.tables.topics import name_trouble
from mqcore.wire.codes import (
    LIVES_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.topics import TopicConfig

LIGHT_QUEUE_PREFIX = "%LMQ%"


@answers(RequestCode.DELETE_TOPIC_IN_BROKER)
def delete_topic(core: Core, request: Request) -> Outcome | OutcomeJob:
    """DELETE_TOPIC_IN_BROKER (215): answered once the queues are gone; no name server is told."""
    name = Fields.of(request.command).text("topic")
    trouble = name_trouble(name)
    if trouble is not None:
        return refused(ResponseCode.SYSTEM_ERROR, trouble)
    if core.topics.is_system(name):
        return refused(
            ResponseCode.SYSTEM_ERROR, f"The topic[{name}] is conflict with system topic."
        )
    before = core.topics.get(name)
    core.topics.delete(name, request.now_ms)
    return core.once_saved(
        request, core.topics, "the topics", lambda: _remove_queues(core, request, name, before))


def _remove_queues(
    core: Core, request: Request, name: str, before: TopicConfig | None
) -> OutcomeJob:
    core.access.changed(request, before.as_json() if before else {}, {})
    while not core.offsets.remove_topic(name, ROWS_A_TURN):
        yield
    outcome = core.once_offsets_saved(request, partial(_remove_files, core, request, name))
    return (yield from outcome) if isinstance(outcome, Generator) else outcome


def _remove_files(core: Core, request: Request, name: str) -> OutcomeJob:
    queues = []
    for some in core.ports.queues.some():
        queues += [(topic, queue_id) for topic, queue_id, _ in some if topic == name]
        yield
    return (yield from _removed(core, request, queues))


@answers(RequestCode.CLEAN_UNUSED_TOPIC)
def clean_unused_topics(core: Core, request: Request) -> OutcomeJob:
    """CLEAN_UNUSED_TOPIC (316): remove the queues of topics that have no config."""
    queues = []
    for some in core.ports.queues.some():
        queues += [
            (topic, queue_id) for topic, queue_id, _ in some
            if core.topics.get(topic) is None
            and topic not in (SCHEDULE_TOPIC, TIMER_TOPIC, OP_TOPIC, LIVES_TOPIC)
            and not topic.startswith(LIGHT_QUEUE_PREFIX)
        ]
        yield
    return (yield from _removed(
        core, request, queues, unless=lambda topic: core.topics.get(topic) is not None))


@answers(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
def clean_expired_queues(core: Core, request: Request) -> OutcomeJob:
    """CLEAN_EXPIRED_CONSUMEQUEUE (306): remove queues whose last record is no longer in the log."""
    store = core.ports.store
    first, _ = store.log_range()
    queues = []
    for some in core.ports.queues.some():
        for topic, queue_id, next_offset in some:
            last = store.entry(topic, queue_id, next_offset - 1)
            if topic not in (SCHEDULE_TOPIC, TIMER_TOPIC, LIVES_TOPIC) and last is not None and (
                    last.position + last.size <= first):
                queues.append((topic, queue_id))
        yield
    return (yield from _removed(core, request, queues))


@answers(RequestCode.DELETE_EXPIRED_COMMITLOG)
def delete_expired_files(core: Core, request: Request) -> Answer:
    """DELETE_EXPIRED_COMMITLOG (329): the cleaner's next 20 passes need not wait for their hour."""
    core.ports.queues.delete_expired_files()
    return Answer(ResponseCode.SUCCESS)


def _removed(
    core: Core, request: Request, queues: list[tuple[str, int]],
    unless: Callable[[str], bool] | None = None,
) -> OutcomeJob:
    if not queues:
        return Answer(ResponseCode.SUCCESS)
    if request.command.code != RequestCode.DELETE_TOPIC_IN_BROKER:       # which has named its own
        core.access.changed(
            request, {f"queue {queue_id} of {topic}": "there" for topic, queue_id in queues}, {})

    def done(trouble: str) -> None:
        frame = answer_frame(request, Answer(ResponseCode.SUCCESS) if not trouble else refused(
            ResponseCode.SYSTEM_ERROR, f"{len(queues)} queues are {trouble}"))
        if frame is not None:
            core.ports.connections.send(request.connection, frame)

    yield from core.ports.queues.remove(queues, done, unless)
    return None
