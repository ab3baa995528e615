"""
A slave's way to its master's tables: asks for them, and brings back what was committed here.

ha.md 4 (RocketMQ 4.9.8: SlaveSynchronize, which asks every ten seconds). What an answer
means is said in mqcore/broker/following.py. A master of ours says in a word that nothing has
changed, so it is asked every OURS_INTERVAL_S; its offsets, too, while they are few. Between two
rounds it is asked to say when something changes: then the next one begins.

The log comes by another way, and may be behind. What the master has delivered and which
transactions it has ended is kept only when the log here is where the master's was behind that
answer: who is promoted before delivers and asks again.
"""
from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from mqcore.broker.core import Core
from mqcore.broker.following import (
    AnswerError,
    begin_delays,
    keep_delays,
    keep_transactions,
    log_end_of,
    position_of,
    read_delays,
    take_groups,
    take_offsets,
    take_topics,
    version_of,
)
from mqcore.broker.tables.config_file import ConfigFileError
from mqcore.broker.tables.own_offsets import OwnOffset
from mqcore.client.core.options import split_address
from mqcore.client.errors import BrokerError, ClientError, RocketMQError, broker_error
from mqcore.client.network.pool import ConnectionPool
from mqcore.replication import epochs, peers
from mqcore.replication.epochs import common_end
from mqcore.tls.contexts import client_context
from mqcore.tls.renewed import Renewed
from mqcore.tls.settings import CLIENT_FILES, TlsSettings
from mqcore.turns import Job
from mqcore.wire.codes import (
    GIVEN_BACK,
    GROUPS_KNOWN,
    KNOWN_VERSION,
    LOG_END,
    OFFSETS_KNOWN,
    TABLE_VERSION,
    TABLES_CHANGED,
    TOPICS_KNOWN,
    VERSION_IS_KNOWN,
    WAIT_MS,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.command import Command, request
from mqcore.wire.numbers import whole_number
from mqcore.wire.printable import printable
from mqcore.workers.process.accounts import Signing

CALL_TIMEOUT_S = 10.0
RETRY_S = 3.0                     # after a master that did not answer
OURS_INTERVAL_S = 1.0
REST_S = 0.02                     # between two rounds at least, and as long as the last one, ...
REST_SHARE = 19                   # ... and as many times of what that took of a processor
HEAR_GRACE_S = 1.0                # for a master whose answer that it waits for is late, or lost
SMALL_BYTES_MAX = 256 << 10       # offsets that are asked for that often
GIVEN_BACK_MAX = 1_000            # offsets that go back to the master in one round
ADDRESS_LENGTH_MAX = 300

Result = TypeVar("Result")
Said = TypeVar("Said")
log = logging.getLogger("mqcore.following")


def is_address(text: str) -> bool:
    """Whether a peer's word for an address is one: host:port, of a reasonable length."""
    try:
        split_address(text)
    except ClientError:
        return False
    return len(text) <= ADDRESS_LENGTH_MAX and text.isascii() and text.isprintable()


def rest_s(took_s: float, worked_s: float, pause_s: float) -> float:
    """
    How long nothing is asked behind a round that took so long, and so much of a processor here: a
    twentieth of one goes into that. On a busy machine most of the former is others' work. pause_s:
    at most.
    """
    return min(pause_s, max(REST_S, took_s, REST_SHARE * worked_s))


class Ahead(Generic[Said]):
    """
    What a master said, each with the log position from which on it is true here. Of what came
    behind the oldest that waits only the newest does: a log that is late all the time gets there.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Said]] = []     # at most two

    def put(self, end: int, said: Said) -> None:
        """end: of the master's log, behind its answer. Less than before: that log was cut."""
        if self._waiting and end < self._waiting[0][0]:
            self._waiting.clear()
        self._waiting[1:] = [(end, said)]

    def take(self, here: int) -> Said | None:
        """The newest that is true of a log that ends at `here`; None: there is none."""
        found = None
        while self._waiting and self._waiting[0][0] <= here:
            found = self._waiting.pop(0)[1]
        return found

    def clear(self) -> None:
        self._waiting.clear()


class Following:
    """One slave's round of questions. `adopt` says who is the master; `keep` asks for ever."""

    def __init__(self, core: Core, spawn: Callable[[Job], None],
                 flushed: Callable[[], int], kept_tls: TlsSettings | None = None) -> None:
        """
        spawn: takes work that has pauses; flushed: up to where the log here is on the disk, a
        position; kept_tls: with copies of the TLS files in force, for a successor. Raises
        TlsFileError.
        """
        self._core = core
        self._spawn = spawn
        self._flushed = flushed
        self._signing = Signing(core.settings.acl, ("", None))
        self._tls = Renewed(
            core.settings.tls, CLIENT_FILES, client_context, self._take_context,
            whose="new connections to the master",
            kept=None if kept_tls is None else partial(client_context, kept_tls))
        self._pool = ConnectionPool(tls=lambda _address: self._context, prepare=self._sign)
        self._changed = asyncio.Event()
        self._trouble = ""                       # that was said last
        self._offsets_at = self._delays_at = 0.0
        self._offsets_size = 0
        self._offsets_trouble = ""               # of the last answer, until the next one is due
        self._offsets_version = ""               # of the master's table that was taken over last
        self._is_ours = False
        self._done_at = 0.0                      # the last whole round; time.monotonic
        self._left: deque[OwnOffset] = deque()      # that the master lacked when it was asked
        self._delays: Ahead[dict[str, Any]] = Ahead()
        self._transactions: Ahead[list[OwnOffset]] = Ahead()
        self.given_back = 0
        self.topics_to = 0                       # log position; topics of messages below are here
        self.master = ""                         # host:port, "" while nobody has said it

    def _take_context(self, context: ssl.SSLContext | None) -> None:
        self._context = context

    def _sign(self, command: Command) -> None:
        self._signing.sign(self.master, command)

    def adopt(self, address: str) -> None:
        """The master's address, as a name server says it; the slave's own is none."""
        if address in (self.master, self._core.settings.advertised_addr):
            return
        log.info("the master is %s", printable(address))
        self.master, self._is_ours = address, False
        self._offsets_at = self._delays_at = 0.0
        self._offsets_version = self._offsets_trouble = ""
        self._left.clear()
        self._delays.clear()
        self._transactions.clear()
        self._changed.set()

    @property
    def looks(self) -> bool:
        """Whether name servers may know better who leads: nobody is known, or it is in trouble."""
        return not self.master or bool(self._trouble)

    @property
    def age_ms(self) -> int:
        """Since the end of the last whole round; -1: there was none."""
        return int(1000 * (time.monotonic() - self._done_at)) if self._done_at else -1

    async def run(self) -> None:
        """Ask, and ask again; to be cancelled."""
        while True:
            began, worked = time.monotonic(), time.thread_time()
            pause_s = await self.round()
            rest = rest_s(time.monotonic() - began, time.thread_time() - worked, pause_s)
            if not await self._is_other(asyncio.sleep(rest)) and rest < pause_s:
                await self._is_other(self._hear(pause_s - rest))

    async def _is_other(self, pause: Coroutine[Any, Any, None]) -> bool:
        """Whether another one became the master before the pause was over."""
        over, other = asyncio.create_task(pause), asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait((over, other), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (over, other):
                task.cancel()
        if over.done():
            over.result()
        found = self._changed.is_set()
        self._changed.clear()
        return found

    async def _hear(self, most_s: float) -> None:
        """
        Until the master says that its tables have changed, for most_s. Behind a round in trouble it
        is not asked: what is not taken over is others at once.
        """
        began = time.monotonic()
        if self._is_ours and not self._trouble:
            try:
                async with asyncio.timeout(most_s + HEAR_GRACE_S):
                    answer = await self._call(RequestCode.HEAR_OF_TABLES, {
                        TOPICS_KNOWN: self._core.topics.version.text,
                        GROUPS_KNOWN: self._core.groups.version.text,
                        OFFSETS_KNOWN: self._offsets_awaited,
                        WAIT_MS: str(int(1000 * most_s))})
                if (answer.ext or {}).get(TABLES_CHANGED) == "true":
                    return
            except (RocketMQError, OSError) as error:  # an older one; or the next round meets it
                log.debug("the master does not say what changes: %s", printable(str(error)))
        await asyncio.sleep(max(0.0, began + most_s - time.monotonic()))

    @property
    def _offsets_awaited(self) -> str | None:
        """The version of the master's offsets that is here; None: nobody waits for another."""
        if self._offsets_size > SMALL_BYTES_MAX or len(self._core.own_offsets):
            return None
        return self._offsets_version or None

    async def close(self) -> None:
        await self._pool.close()

    @property
    def _interval_s(self) -> float:
        return self._core.settings.replication.metadata_interval_ms / 1000

    async def round(self) -> float:
        """Ask for all that is due; returns after how many seconds to ask again."""
        self._tls.look(int(1000 * time.monotonic()))
        if not self.master:
            self._say("name servers know no master yet" if not self._core.settings.follows
                      else "nobody is known to lead yet")
            return self._interval_s
        troubles = []
        for ask in (self._ask_topics, self._ask_groups, self._ask_offsets, self._ask_delays):
            try:
                await ask()
            except (RocketMQError, AnswerError, ConfigFileError, OSError, ValueError) as error:
                troubles.append(f"{ask.__name__.removeprefix('_ask_')}: {error}")
                if not self._pool.is_open(self.master):
                    break
        self._say("; ".join(troubles))
        if troubles:
            return min(self._interval_s, RETRY_S)
        self._done_at = time.monotonic()
        return min(self._interval_s, OURS_INTERVAL_S) if self._is_ours else self._interval_s

    def _say(self, trouble: str) -> None:
        whose = f" of the master {printable(self.master)}" if self.master else ""
        if trouble and trouble != self._trouble:
            log.warning("tables%s are not taken over: %s", whose, printable(trouble))
        elif not trouble and self._trouble:
            log.info("tables%s are taken over", whose)
        self._trouble = trouble

    async def _ask_topics(self) -> None:
        _, log_end = self._core.ports.store.log_range()
        answer = await self._call(
            RequestCode.GET_ALL_TOPIC_CONFIG, {KNOWN_VERSION: self._core.topics.version.text})
        known = (answer.ext or {}).get(VERSION_IS_KNOWN)
        self._is_ours = known is not None
        if known != "true":
            await self._take(take_topics(self._core, answer.body))
        self.topics_to = log_end

    async def _ask_groups(self) -> None:
        answer = await self._call(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            {KNOWN_VERSION: self._core.groups.version.text})
        if (answer.ext or {}).get(VERSION_IS_KNOWN) != "true" and await self._take(
                take_groups(self._core, answer.body)):
            self._offsets_at, self._offsets_version = 0.0, ""   # those of a group may go with it

    async def _ask_offsets(self) -> None:
        self._keep_transactions()
        often = self._is_ours and self._offsets_size <= SMALL_BYTES_MAX
        if not often and not self._is_due(self._offsets_at):
            if self._is_ours:                    # which holds each against what it has by then
                await self._give_some_back()
            if self._offsets_trouble:
                raise AnswerError(self._offsets_trouble)
            return
        master = self.master
        known = "" if len(self._core.own_offsets) else self._offsets_version
        answer = await self._call(
            RequestCode.GET_ALL_CONSUMER_OFFSET, {KNOWN_VERSION: known} if self._is_ours else {})
        said = answer.ext or {}
        if said.get(VERSION_IS_KNOWN) == "true":
            return
        found = await self._take(
            take_offsets(self._core, answer.body, is_ours=self._is_ours))
        self._left = deque(found.left)
        self._offsets_at, self._offsets_size = time.monotonic(), len(answer.body)
        self._offsets_trouble = ""
        try:
            noted = not found.transactions or await self._note(
                self._transactions, master, answer, found.transactions)
        except (RocketMQError, AnswerError) as error:
            if self.master == master:
                self._offsets_trouble = str(error)
            raise
        self._keep_transactions()
        self._offsets_version = version_of(said.get(TABLE_VERSION)) if noted else ""
        await self._give_some_back()

    def _keep_transactions(self) -> None:
        found = self._transactions.take(self._core.ports.store.log_range()[1])
        if found is not None:
            keep_transactions(self._core, found)

    async def _note(self, ahead: Ahead[Said], master: str, answer: Command, said: Said) -> bool:
        """
        What an answer says of the master's log waits for the log here; False: there is nothing to
        wait for, that is another log, or another one is the master by now. A stock master is asked
        where its log ended behind the answer.
        """
        end = (answer.ext or {}).get(LOG_END)
        if end is None:
            info = await self._call(RequestCode.GET_BROKER_RUNTIME_INFO)
            position = log_end_of(info.body)
        else:
            position = position_of(end)
        if (self._is_ours and not await self._is_one_log()) or self.master != master:
            return False
        ahead.put(position, said)
        return True

    async def _give_some_back(self) -> None:
        """
        Offsets that the master lacks: it is behind what was committed here. One that it refuses
        waits for the others; the first refusal is raised at the end.
        """
        if not self._left or (self._is_ours and not await self._is_one_log()):
            return
        refused: BrokerError | None = None
        for _ in range(min(len(self._left), GIVEN_BACK_MAX)):
            commit = self._left.popleft()
            try:
                await self._give_back(commit)
            except BrokerError as error:
                self._core.own_offsets.postpone(commit)
                refused = refused or error
        if refused is not None:
            raise refused

    async def _is_one_log(self) -> bool:
        """
        Whether the log here is the beginning of the master's. Where it is not, offsets here count
        other messages than there: the master's consumers would pass over some.
        """
        standing = epochs.read(self._core.settings.store_root)
        end = self._core.ports.store.log_range()[1]
        answer = await self._call(RequestCode.GET_REPLICATION)
        theirs = peers.decode(answer.body)
        if standing is None or theirs.history is None:
            return theirs.end >= end
        return common_end(standing.history, end, theirs.history, theirs.end) == end

    async def _give_back(self, commit: OwnOffset) -> None:
        queue: dict[str, str | None] = {"topic": commit.topic, "queueId": str(commit.queue_id)}
        if not self._is_ours and not await self._has_queue(commit, queue):
            return
        await self._call(RequestCode.UPDATE_CONSUMER_OFFSET, {
            "consumerGroup": commit.group, **queue, "commitOffset": str(commit.offset),
            **({GIVEN_BACK: "true"} if self._is_ours else {})})
        self._core.own_offsets.remove(commit)
        self.given_back += 1

    async def _has_queue(self, commit: OwnOffset, queue: dict[str, str | None]) -> bool:
        """Whether a stock master's queue is as long as the one here, as far as it was consumed."""
        here = self._core.ports.store.queue_range(commit.topic, commit.queue_id)
        answer = await self._call(RequestCode.GET_MAX_OFFSET, queue)
        there = whole_number((answer.ext or {}).get("offset") or "")
        return there is not None and there >= min(commit.offset, here[1] if here else 0)

    async def _ask_delays(self) -> None:
        self._keep_delays()
        if not self._is_due(self._delays_at):
            return
        begin_delays(self._core)
        master, since = self.master, self._core.ports.store.log_range()[1]
        ext: dict[str, str | None] = {KNOWN_VERSION: ""} if self._is_ours else {}
        answer = await self._call(RequestCode.GET_ALL_DELAY_OFFSET, ext, may_have_none=True)
        if answer.body:
            found = await self._take(read_delays(answer.body, since))
            await self._note(self._delays, master, answer, found)
            self._keep_delays()
        self._delays_at = time.monotonic()

    def _keep_delays(self) -> None:
        """As the scheduler does: what the file calls delivered is on the disk before the file."""
        found = self._delays.take(self._flushed())
        if found is not None:
            keep_delays(self._core, found)

    def _is_due(self, last: float) -> bool:
        return not last or time.monotonic() - last >= self._interval_s

    async def _call(
        self, code: RequestCode, ext: dict[str, str | None] | None = None, *,
        may_have_none: bool = False,
    ) -> Command:
        """An answer of the master; may_have_none: it may say SYSTEM_ERROR for that."""
        answer = await self._pool.invoke(self.master, request(code, ext or {}),
                                         timeout=CALL_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS and not (
                may_have_none and answer.code == ResponseCode.SYSTEM_ERROR and not answer.body):
            raise broker_error(answer.code, answer.remark, self.master)
        return answer

    def _take(self, job: Job) -> Awaitable[Any]:
        """The result of a job that is done in turns with the requests."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def run() -> Job:
            try:
                result = yield from job
            except (AnswerError, ConfigFileError, OSError) as error:
                if not done.done():
                    done.set_exception(error)
                return
            if not done.done():
                done.set_result(result)

        self._spawn(run())
        return done
