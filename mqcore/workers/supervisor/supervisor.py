"""Work of the supervisor: start, life and end of a run; shared memory, sockets, processes."""
from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import logging
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import replace as changed
from functools import partial

from msgspec.structs import replace
from setproctitle import setproctitle

from mqcore.acl.kept import KeptFiles
from mqcore.broker.settings import exposure
from mqcore.broker.settings.changed import ChangedSettings
from mqcore.broker.settings.live import lines, live_part
from mqcore.broker.settings.model import Settings
from mqcore.broker.standing import StandingError
from mqcore.layout import LEADERSHIP_NONE, WORKER_ABSENT, WORKER_RUNNING, WORKER_STOPPED
from mqcore.participants import (
    COORDINATOR,
    HA_MASTER,
    HA_SLAVE,
    SCHEDULER,
    SERVING,
    SUPERVISOR,
    TRANSACTION_CHECK,
    WRITER,
    Holds,
    Start,
    processes,
)
from mqcore.shm import memory
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.memory import SharedMemoryError
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.segment import Segment
from mqcore.shm.text_board import SettingsBoard
from mqcore.store import last_run
from mqcore.store.files import unlink
from mqcore.store.ownership import StoreInUseError, holder
from mqcore.workers.failover import standing
from mqcore.workers.failover.elected import LOOK_MS, Elections, Rejoining
from mqcore.workers.process import descriptors, loop, output
from mqcore.workers.process.accounts import run_account
from mqcore.workers.process.activated import Activated
from mqcore.workers.process.descriptors import TooFewDescriptors
from mqcore.workers.process.inherited import Inherited, Listeners
from mqcore.workers.process.layout import StoreFiles
from mqcore.workers.process.listening import BACKLOG, ListenError, open_listeners
from mqcore.workers.process.live import SettingsNow, set_log_level
from mqcore.workers.process.said import Said
from mqcore.workers.process.secured import KeptTls
from mqcore.workers.process.signals import Orders, Terminal
from mqcore.workers.process.stopping import (
    EXIT_OVERTAKEN,
    EXIT_UNFINISHED,
    OvertakenError,
    UnfinishedStop,
)
from mqcore.workers.supervisor import limits
from mqcore.workers.supervisor.children import Child, Starved, doing, ended, spoken
from mqcore.workers.supervisor.limits import LimitError
from mqcore.workers.supervisor.manager import ServiceManager
from mqcore.workers.supervisor.place import Place, live_run
from mqcore.workers.writer import kept_clock
from mqcore.workers.writer.writer import EXIT_DAMAGED

EXIT_AGAIN = 75                   # the run is over, and the next one is to begin at once
START_TIMEOUT_S = 600.0           # recovery of a large store after a crash takes its time
STOP_STEP_S = 4.0                 # for one kind of process to end, before it is killed ...
STOP_GRACE_S = 5.0                # ... if it holds nothing; for the others to say what is lost
WORD_INTERVAL_S = 10.0
LOOK_INTERVAL_MS = 1000
QUICK_DEATH_S = 1.0               # a process that lived shorter is started again with a pause
START_DEATHS_MAX = 5              # one after the other, of one process before the broker is ready
RESTART_PAUSES_S = (0.0, 0.1, 0.25, 0.5, 1.0)

log = logging.getLogger("mqcore.supervisor")


class StartError(RuntimeError):
    """The broker cannot start; the text is the one sentence that says why."""


class Supervisor:
    """
    Runs one broker: `run` returns the exit status when it has ended.

    said: the settings, which SIGHUP reads again; embedded_namesrv: whether a name server runs
    beside it; on_ready: called once clients can connect, with the addresses of broker and name
    servers; kept, kept_tls: the access files and the TLS files in force, also of the run before;
    rejoining: what one run leaves to the next; terminal: where the process was started; manager:
    the service manager that started it, and `activated` the sockets that it listens at.
    """

    def __init__(self, said: Said[Settings], *, embedded_namesrv: bool,
                 on_ready: Callable[[Settings], None], kept: KeptFiles,
                 kept_tls: KeptTls, rejoining: Rejoining, terminal: Terminal,
                 manager: ServiceManager, activated: Activated) -> None:
        self._said = said
        self._changes = ChangedSettings(said.settings)
        self._settings = self._changes.load()
        self._embedded = embedded_namesrv
        self._on_ready = on_ready
        self._files = StoreFiles(self._settings.store_root)
        self._children: list[Child] = []
        self._orders = Orders(terminal)
        self._ending = self._overtaken = self._marked = False
        self._unfinished: list[str] = []
        self._kept, self._kept_tls = kept, kept_tls
        self._rejoining, self._manager, self._activated = rejoining, manager, activated
        self._elections: Elections | None = None

    def run(self) -> int:
        """
        Start, watch, stop everything; EXIT_AGAIN: a new supervisor is to do so (as_left.pxd, Y5; or
        an operator has told the broker to be something else). Raises StartError before anything is
        started.
        """
        setproctitle("mqcore: supervisor")
        self._orders.catch_again()
        set_log_level(self._settings)
        self._prepare_secrets()
        self._prepare_store()
        self._prepare_standing()
        listeners = self._listeners()
        self._segment = self._make_segment()
        self._leadership = LeadershipPen(self._segment)
        try:
            self._bell = select.epoll()
            self._bell.register(self._segment.bell(SUPERVISOR.slot), select.EPOLLIN)
            self._wakeup = self._orders.catch()
            self._bell.register(self._wakeup, select.EPOLLIN)
            self._say_who_reaches_it()
            self._plan(listeners)
            code = self._live()
        finally:
            self._end_children()
            if self._overtaken:
                self._rejoining.end = self._segment.log_state()["published"]
            self._segment.unlink()
            listeners.close()
            self._orders.let_go()
        if self._unfinished:
            log.error("the stop is not a clean one: %s did not finish", ", ".join(self._unfinished))
            if self._orders.stop or code != EXIT_AGAIN:      # else the next run begins without it
                return EXIT_UNFINISHED
        return 0 if self._orders.stop and code == EXIT_AGAIN else code

    # -- before the first process ------------------------------------------------------------------

    def _listeners(self) -> Listeners:
        """
        What the machine has to give. Where it does not, and requests have changed settings for this
        start, it is a start without those.
        """
        try:
            self._look_at_limits()
            return self._open_listeners()
        except StartError as error:
            plain = self._changes.live()
            if plain == self._settings:
                raise
            log.warning("this start is one without the settings that requests changed for it: %s",
                        error)
            self._settings = plain
        self._look_at_limits()
        return self._open_listeners()

    def _look_at_limits(self) -> None:
        """Children inherit the raised limit; they share it out in the same way."""
        wanted = self._settings.processes.connection_count_max
        try:
            limits.check_memory(self._settings)
            limits.check_address_space(self._settings, 0)
            share = descriptors.share(self._settings, self.serving_count,
                                      descriptors.raise_limit())
        except (LimitError, TooFewDescriptors) as error:
            raise StartError(str(error)) from error
        if share.connections < wanted:
            log.warning("RLIMIT_NOFILE is %d: %d connections for each serving process instead of "
                        "%d (processes.connection_count_max), and %d open queue files",
                        share.limit, share.connections, wanted, share.queue_files)

    def _prepare_secrets(self) -> None:
        try:
            self._settings = self._kept_tls.begin(self._settings, embedded=self._embedded)
        except (ValueError, OSError) as error:
            raise StartError(str(error)) from error

    def _prepare_store(self) -> None:
        root = self._files.root
        pid = live_run(self._prefix)
        try:
            if pid and holder(root) == 0:
                raise StartError(f"process {pid} is a broker that was started on {root}, which "
                                 "leads to another folder now: stop it first")
            self._settings.log_folders.make()
            self._settings.config_dir.mkdir(parents=True, exist_ok=True)
            self._place = Place(self._settings)
        except PermissionError as error:
            raise StartError(f"the store {root} cannot be written: {error}") from error
        except StoreInUseError as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise StartError(f"the store {root} cannot be opened: {error}") from error

    def _prepare_standing(self) -> None:
        try:
            self._settings = standing.prepared(self._settings, self._changes)
            self._last = last_run.read(self._files.abort)        # before it is this run's
        except (ValueError, StandingError, OSError) as error:
            raise StartError(str(error)) from error
        self._rejoining.begin(self._settings)

    def _open_listeners(self) -> Listeners:
        try:
            return open_listeners(self._settings, self.serving_count, self._activated,
                                  embedded=self._embedded)
        except ListenError as error:
            raise StartError(str(error)) from error

    @property
    def serving_count(self) -> int:
        return limits.serving_count(self._settings)

    @property
    def _prefix(self) -> str:
        """Of the names of this store's shared memory."""
        digest = hashlib.sha256(os.fsencode(os.path.realpath(self._files.root))).hexdigest()[:12]
        return f"mqcore-{digest}-"

    def _make_segment(self) -> Segment:
        prefix = self._prefix
        memory.remove_stale(prefix, loop.alive)
        processes = self._settings.processes
        run_id = time.time_ns()
        try:
            segment = Segment.create(
                f"/{prefix}{os.getpid()}", run_id=run_id, serving_count=self.serving_count,
                segment_size=self._settings.store.segment_size_bytes,
                message_bytes_max=self._settings.store.message_size_max_bytes,
                topics=processes.topic_count_max, groups=processes.group_count_max,
                subscriptions=processes.subscription_count_max, queues=processes.queue_count_max,
                access_bytes=(self._settings.acl.table_bytes_max if self._settings.acl.enable
                              else 0),
                slave=self._settings.is_slave, pops=self._settings.serves_pop,
                kind=processes.shared_memory)
        except SharedMemoryError as error:
            raise StartError(str(error)) from error
        except (OSError, ValueError) as error:
            raise StartError(f"shared memory cannot be made: {error} (if it is memory that is "
                             "missing: see RLIMIT_AS, ulimit -v)") from error
        kept_clock.begin(segment, self._files.clock, self._settings.log_folders)
        try:
            limits.check_address_space(self._settings, segment.size)
        except LimitError as error:
            segment.unlink()
            raise StartError(str(error)) from error
        if not segment.named and processes.shared_memory == "auto":
            log.info("shared memory of %s has no room in /dev/shm: it lies in a memfd",
                     memory.mib(segment.size))
        segment.make_bells()
        return segment

    def _say_who_reaches_it(self) -> None:
        FigureSlots(self._segment).put(
            "open_to_others", int(exposure.is_open(self._settings, embedded=self._embedded)))
        text = exposure.warning(self._settings, embedded=self._embedded)
        if text:
            log.warning("%s", text)

    def _plan(self, listeners: Listeners) -> None:
        """All processes that this run has; their code is loaded here, once for all of them."""
        acl = self._settings.acl
        inherited = Inherited(
            self._settings, self._changes, self._segment, listeners, self._embedded,
            run_account() if acl.enable and acl.namesrv_enable and self._embedded else None,
            self._kept if acl.enable else None, self._rejoining.not_before, self._kept_tls,
            beats=self._manager.beats)
        self._replication_listeners = listeners.replication
        leading = changed(inherited, settings=replace(self._settings, follows=False))
        for row, index in processes(self.serving_count):
            if row is SUPERVISOR or (row.section and not getattr(
                    self._settings, row.section).enable):
                continue
            code = importlib.import_module(row.module)
            now = not row.optional or code.wanted(inherited)
            if now or code.wanted(leading):
                self._children.append(Child(row, index, partial(code.live, inherited, index),
                                            rests=not now))
        if self._settings.follows:
            self._elections = Elections(self._settings, self._segment)

    # -- life --------------------------------------------------------------------------------------

    def _live(self) -> int:
        gc.collect()
        gc.freeze()                    # children share what is here, untouched by their collector
        for step in Start:
            begun = [child for child in self._children
                     if child.row.start is step and not child.rests]
            for child in begun:
                self._start(child)
            if step is not Start.BESIDE and not (
                    self._wait_running(begun) and self._reached(step)):
                return self._start_failed()
        if not self._wait_running([child for child in self._children if not child.rests]):
            return self._start_failed()
        self._on_ready(self._settings)
        live = SettingsNow(self._settings, self._segment)      # the log level may change
        while not (self._orders.stop or self._orders.again or self._segment.queues_changed
                   or self._overtaken or (self._elections and self._elections.is_over)):
            live.look()
            self._place.look(self._segment)
            if self._orders.hung_up:
                self._orders.hung_up = False
                self._read_settings_again()
            self._kept_tls.look(time.monotonic_ns() // 1_000_000)
            self._segment.arm(SUPERVISOR.slot)           # who elects it rings
            changing = self._elections is not None and (
                self._elections.is_ending or self._change(self._elections))
            self._sleep(LOOK_MS if changing else self._until_next_restart_ms())
            self._reap()
            self._restart_due()
            self._look_if_lost()
        return self._over()

    def _read_settings_again(self) -> None:
        """The coordinator takes what is honoured at once, below what requests have changed."""
        if self._said.again(log, partial(live_part, started=self._settings)):
            SettingsBoard(self._segment, said=True).write(lines(self._said.settings, None))

    def _over(self) -> int:
        """The exit status of a run that is to end, and the word that says why."""
        if self._orders.stop:
            log.info("stopping on %s", signal.Signals(self._orders.stop).name)
            return 0
        if self._segment.queues_changed:
            log.error("stopping, to look at all queues' files in a new start")
        elif self._overtaken:
            log.warning("stopping, to cut what the log of who leads has not")
        elif self._elections is not None and self._elections.is_over:
            log.warning("stopping, to begin anew as one who follows: the election is lost")
        else:
            log.warning("stopping, to begin anew as the store says (SIGUSR1)")
        return EXIT_AGAIN

    def _look_if_lost(self) -> None:
        """A master must not lead any more, by an election or without (failover/standing.py)."""
        pen = self._leadership
        if self._elections is not None:
            if not self._elections.lose():
                return
        elif pen.role == pen.requested:
            return
        else:
            pen.become(*pen.requested)
        for child in self._children:
            if child.row in (SCHEDULER, TRANSACTION_CHECK):      # what they store is refused
                child.rests, child.restart_at = True, 0.0
                self._segment.request_stop(child.slot)
        self._ring_about_role()

    def _ring_about_role(self) -> None:
        for slot in (COORDINATOR.slot, WRITER.slot,
                     *(SERVING.slot + index for index in range(self.serving_count))):
            self._segment.ring_bell(slot)

    def _change(self, elections: Elections) -> bool:
        """Whether this broker is on its way from following to leading (failover/elected.py)."""
        epoch = elections.called
        slave = next(child for child in self._children if child.row is HA_SLAVE)
        if not epoch:
            if elections.call_off():
                slave.rests = False
                slave.restart_at = time.monotonic()
            return False
        slave.rests, slave.restart_at = True, 0.0
        if not (elections.end_slave(slave.pid) and elections.lead(epoch)):
            return True
        self._settings = replace(self._settings, follows=False)
        self._ring_about_role()
        for listener in self._replication_listeners:
            listener.listen(BACKLOG)
        for child in self._children:
            if child.rests and child is not slave:
                child.rests = False
                self._start(child)
        return False

    def _reached(self, step: Start) -> bool:
        """What comes after a step of the start; False: it cannot continue."""
        if step is Start.LOG and (self._last.clean or self._last.same_boot):
            self._mark_unclean()
        if step is not Start.QUEUES:
            return True
        if not standing.begin_run(self._settings, self._segment, self._last,
                                  self._kept_tls.settings):
            return False
        self._look_if_lost()
        may_lead = self._elections is not None or self._leadership.role[0] == LEADERSHIP_NONE
        if not self._marked and may_lead:
            self._mark_unclean()       # a loss of power is known until its epoch is on the disk
        # nobody looks at a queue before it has its entries again: a pull would be told to move
        return self._wait_dispatched()

    def _mark_unclean(self) -> None:
        """From here on an end without `_end_children` is unclean; the next start sees the mode."""
        self._marked = True
        try:
            last_run.mark(self._files.abort, self._settings.store.flush)
        except OSError as error:       # a full disk: the next start assumes less
            log.warning("%s: %s", self._files.abort, error.strerror)

    def _start(self, child: Child) -> None:
        self._segment.begin_incarnation(child.slot)
        child.started = time.monotonic()
        child.restart_at = 0.0
        output.flush()
        child.pid, parent, blocked = loop.fork()
        if child.pid == 0:
            self._be(child, parent, blocked)
        self._segment.started(child.slot, child.pid, time.time_ns() // 1_000_000)

    def _be(self, child: Child, parent: int, blocked: set[int]) -> None:
        """In the child: live, and never come back."""
        code = 1
        try:
            loop.become(child.name, self._segment, child.slot, parent, blocked)
            os.close(self._wakeup)
            self._segment.started(child.slot, os.getpid(), time.time_ns() // 1_000_000)
            child.body()
            code = 0
        except UnfinishedStop:         # it has said what is lost
            code = EXIT_UNFINISHED
        except OvertakenError:
            code = EXIT_OVERTAKEN
        except Exception:              # this process's boundary: say why, the parent starts another
            logging.getLogger(f"mqcore.{child.name}").exception("ends by an error")
        finally:
            logging.shutdown()
            output.flush()
            os._exit(code)

    def _sleep(self, timeout_ms: int) -> None:
        self._manager.turn(self._segment, stops=bool(self._orders.stop), ends=self._ending)
        for fd, _ in self._bell.poll(max(timeout_ms, 0) / 1000):
            with contextlib.suppress(BlockingIOError):
                os.read(fd, 4096)

    def _reap(self) -> None:
        for child, code in ended(self._children):
            self._buried(child, code)

    def _buried(self, child: Child, code: int) -> None:
        child.pid = 0
        if code == 0 and self._segment.state(child.slot) == WORKER_STOPPED and (
                self._orders.stop or self._ending):
            return
        was_running = self._segment.state(child.slot) == WORKER_RUNNING
        self._segment.set_state(child.slot, WORKER_ABSENT)
        if child.row is HA_MASTER:     # its slaves' links went with it
            ReplicaPen(self._segment).leave()
        if self._ending:
            log.error("%s ended with %s while it was to stop", child.name, spoken(code))
            if child.row.holds is Holds.LOST and was_running:    # before that it took nothing
                self._unfinished.append(child.name)
            return
        if child.rests:
            return
        if code == EXIT_OVERTAKEN:
            self._overtaken = True
            self._rejoining.ask(self._segment)
            return
        quick = time.monotonic() - child.started < QUICK_DEATH_S
        child.deaths = child.deaths + 1 if quick else 0
        child.cannot_start = (code >= 0 or child.deaths >= START_DEATHS_MAX
                              or (child.row is WRITER and not was_running))
        pause = RESTART_PAUSES_S[min(child.deaths, len(RESTART_PAUSES_S) - 1)]
        child.restart_at = time.monotonic() + pause
        if child.row is WRITER and code == EXIT_DAMAGED:
            child.restart_at = float("inf")
        log.error("%s ended with %s; %s", child.name, spoken(code),
                  "it is started again" if child.restart_at != float("inf")
                  else "the store needs a look")

    def _until_next_restart_ms(self) -> int:
        due = [child.restart_at for child in self._children if child.restart_at]
        if self._place.elsewhere or not due or min(due) == float("inf"):
            return LOOK_INTERVAL_MS
        return min(LOOK_INTERVAL_MS, int(1000 * (min(due) - time.monotonic())))

    def _restart_due(self) -> None:
        if self._place.elsewhere:      # it would begin on what another broker has
            return
        for child in self._children:
            if child.restart_at and time.monotonic() >= child.restart_at:
                self._start(child)

    def _wait_running(self, children: list[Child]) -> bool:
        return self._wait_until(50, lambda: all(
            self._segment.state(child.slot) == WORKER_RUNNING for child in children))

    def _wait_dispatched(self) -> bool:
        """
        Until consumers see all that was stored before this start (store.md 9.7), or as much of it
        as they may (dispatch D5).
        """
        pen = ReplicaPen(self._segment)

        def is_dispatched() -> bool:
            state = self._segment.log_state()
            end = state["published"]
            return bool(state["dispatched"] >= (
                pen.shown_end(end) if self._settings.shows_replicated_only else end))

        return self._wait_until(5, is_dispatched)

    def _wait_until(self, look_ms: int, reached: Callable[[], bool]) -> bool:
        """
        A step of the start. Who is killed meanwhile is started again, as later on; False: one of
        them cannot continue, or a stop came, or it takes for ever.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            self._segment.arm(SUPERVISOR.slot)           # who changes its state rings
            if reached():
                return True
            if (self._orders.stop or self._overtaken or time.monotonic() > deadline
                    or any(child.cannot_start for child in self._children)):
                return False
            self._restart_due()
            self._sleep(min(look_ms, self._until_next_restart_ms()))
            self._reap()

    def _start_failed(self) -> int:
        if self._orders.stop or self._overtaken:
            return self._over()
        log.error("the broker could not be started")
        return 1

    # -- the end -----------------------------------------------------------------------------------

    def _end_children(self) -> None:
        """In the order in which data flows, so that nobody waits for one who is gone."""
        self._ending = True
        self._stop_deadline = time.monotonic() + self._settings.processes.stop_timeout_ms / 1000
        clean = True
        for number in sorted({child.row.stop for child in self._children}):
            step = [child for child in self._children if child.row.stop == number]
            clean = self._end_step([child for child in step if child.pid]) and clean
            clean = clean and all(self._segment.state(child.slot) == WORKER_STOPPED
                                  for child in step if child.row.stores)
        state = self._segment.log_state()
        if clean and self._marked and not state["refusal"] and self._place.is_ours() and (
                state["dispatched"] >= state["published"]):
            with contextlib.suppress(FileNotFoundError):
                unlink(self._files.abort)
        self._place.release()

    def _end_step(self, children: list[Child]) -> bool:
        for child in children:
            self._segment.request_stop(child.slot)
        now = time.monotonic()
        holds = any(child.row.holds is not Holds.NOTHING for child in children)
        deadline = max(self._stop_deadline, now) + STOP_GRACE_S if holds else now + STOP_STEP_S
        hurried, next_word = not holds, now + WORD_INTERVAL_S
        starved = Starved(child.pid for child in children)
        while any(child.pid for child in children) and now < deadline + starved.seconds():
            if not hurried and (self._orders.is_hurried or now >= self._stop_deadline):
                hurried, deadline = True, now + STOP_GRACE_S
                for child in children:
                    self._segment.hurry_stop(child.slot)
            if now >= next_word:
                next_word += WORD_INTERVAL_S
                log.warning("stopping: %s still works; another signal ends it, and loses what it "
                            "holds", ", ".join(child.name for child in children if child.pid))
            self._sleep(20)
            self._reap()
            now = time.monotonic()
        killed = [child for child in children if child.pid]
        for child in killed:
            log.error("%s does not stop (%s): it is killed%s", child.name, doing(child.pid),
                      ", what it held is lost" if child.row.holds is not Holds.NOTHING else "")
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            child.pid = 0
            self._segment.set_state(child.slot, WORKER_ABSENT)
            self._unfinished.append(child.name)
        return not killed
