"""
The names of log lines. A line's name stays the same when its words change, so that alerts and
searches can rely on it; docs/events.md is made of this table.

A new line gets a row at the end, with the next number. A line that is not written any more keeps
its row, without texts: its name is not given to another one.
"""
from __future__ import annotations

import logging
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """
    number: of the row, from 1 on, without a gap; lines: the formats of the lines, as a logger gets
    them, or the `place` of a format that has no words of its own; none: it is retired.
    """

    number: int
    name: str
    lines: tuple[str, ...]


def place(module: str, function: str, text: str) -> str:
    """The key of a format without words."""
    return f"{module}.{function} {text}"


EVENTS = (
    Event(1, "abort-file-not-written", ("supervisor._mark_unclean %s: %s",)),
    Event(2, "access-files-not-kept", (
        "access files cannot be kept for processes that start anew: %s",
    )),
    Event(3, "access-rules-read", ("access rules were read again: %d accounts in %d files",)),
    Event(4, "access-rules-unusable", ("access rules stay unchanged: %s",)),
    Event(5, "acknowledged-lost", (
        "%d bytes of acknowledged messages are lost: the commit log could not be written "
            "before the stop (%s)",
    )),
    Event(6, "audit", (
        "audit: %s %s of %s from %s%s%s",
        "audit.line %s",
        "audit: %s of %s from %s%s changed %s%s",
        "audit.changed %s",
    )),
    Event(7, "audit-lines-left-out", ("audit: %d lines more are not shown",)),
    Event(8, "backup-table-used", ("%s: %s is used in its place, changes since then are lost",)),
    Event(9, "changed-setting-ignored", ("a setting changed by request is ignored: %s",)),
    Event(10, "changed-settings-ignored", (
        "settings changed by request are ignored: %s: expected an object with the member "
            "%s, an object",
        "settings changed by request are ignored: %s: %s",
    )),
    Event(11, "changed-settings-unusable", (
        "changed settings cannot be used, those before stay: %s",
    )),
    Event(12, "changes-lost-at-stop", ("changes since they were saved last are lost of %s: %s",)),
    Event(13, "checkpoint-not-written", (
        "the checkpoint cannot be written: %s. The next start looks at the log again",
        "the checkpoint cannot be written: %s",
    )),
    Event(14, "checksums-foreign", (
        "checksums of another log are set aside as %s: the records of that segment are "
            "judged by themselves",
    )),
    Event(15, "connection-closed", ("connection from %s closed: %s",)),
    Event(16, "connections-closed", ("%d more connections were closed or refused",)),
    Event(17, "damaged-message", (
        "the message at log position %d is damaged and is not handed out: mqcore store verify "
            "says more, mqcore store repair mends it",
    )),
    Event(18, "damaged-messages", ("more messages are damaged: mqcore store verify says which",)),
    Event(19, "damaged-record-not-sent", (
        "the log is damaged at position %d: slave %s gets nothing from there on; mqcore "
            "store verify %s says what is wrong, mqcore store repair mends it while the broker "
            "is stopped",
    )),
    Event(20, "delay-log-unreadable", (
        "the log cannot be read at position %d: messages that were delivered behind it may "
            "be delivered again",
    )),
    Event(21, "delay-offsets-not-written", ("delayOffset.json cannot be written: %s",)),
    Event(22, "delayed-not-delivered", (
        "the message at offset %d of delay level %d is not delivered: %s",
    )),
    Event(23, "descriptors-few", (
        "RLIMIT_NOFILE is %d: %d connections for each serving process instead of %d "
            "(processes.connection_count_max), and %d open queue files",
    )),
    Event(24, "dispatch-failed", ("%s: %s; trying again every %d ms",)),
    Event(25, "elected", ("this broker is elected, for epoch %d",)),
    Event(26, "elected-but-cannot-lead", ("elected for epoch %d, and cannot lead: %s",)),
    Event(27, "epoch-begins", ("epoch %d begins at log position %d: %s",)),
    Event(28, "etcd-answers-again", ("etcd answers again, after %.1f s",)),
    Event(29, "etcd-not-used", ("etcd is not used: %s: %s; %s",)),
    Event(30, "etcd-trouble", ("failover._silent %s: %s; %s",)),
    Event(31, "expired-extension-files-deleted", ("%d queue extension files are deleted",)),
    Event(32, "expired-queue-files-deleted", (
        "%d queue files and %d index files are deleted: the log begins at %d",
    )),
    Event(33, "expired-queue-files-not-deleted", ("expired queue files cannot be deleted: %s",)),
    Event(34, "expired-segments-not-deleted", ("expired commit log files cannot be deleted: %s",)),
    Event(35, "failover-failure", ("failover._after_loss %s",)),
    Event(36, "failover-request-done", ("%s: done",)),
    Event(37, "failover-trouble", ("failover._complain %s",)),
    Event(38, "filter-bits-ignored", ("%s: its bit maps have another size: ignored",)),
    Event(39, "filter-refused", ("group %s, topic %s: %s",)),
    Event(40, "flush-timeouts", (
        "%d sends were answered FLUSH_DISK_TIMEOUT: a flush took longer than %d ms",
    )),
    Event(41, "flush-unknown-at-stop", (
        "%d bytes of the commit log are not known to be on the disk (%s): a power cut "
            "would lose them",
    )),
    Event(42, "follows-all-the-same", ("%s: this broker follows all the same",)),
    Event(43, "foreign-queue-files", (
        "%d files in the folder of queue %d of topic %s are not the queue's and stay: %s, "
            "...",
    )),
    Event(44, "group-name-too-long", ("%s: group %.40r... is too long to be used",)),
    Event(45, "group-too-slow", (
        "group %s reads too slowly and may not consume any more: its last pull of %s, "
            "queue %d, was %d bytes (%d ms) behind, broker.consumer_fallbehind_threshold_bytes "
            "is %d; update the group (mqadmin updateSubGroup -s true) to let it continue",
    )),
    Event(46, "http-listens", ("%s is listened on now",)),
    Event(47, "http-port-taken", ("there are no metrics and no answers to probes: %s",)),
    Event(48, "http-trouble", ("http._on_trouble %s: %s",)),
    Event(49, "in-sync-set", ("the set is %s",)),
    Event(50, "keys-without-effect", ("run.supervise %s: %s",)),
    Event(51, "leader-changed", ("member %d at %s leads, in epoch %d",)),
    Event(52, "leadership-given-up", ("this broker gives up that it leads: %s",)),
    Event(53, "leadership-lost", ("standing.look %s; %s",)),
    Event(54, "leadership-refused", ("standing.begin_run %s; %s",)),
    Event(55, "leadership-trouble", ("standing.look %s",)),
    Event(56, "leads-no-more", ("this broker leads no more: epoch %d is over",)),
    Event(57, "lock-remade", ("%s was removed, and is made again",)),
    Event(58, "log-cut", (
        "the commit log ends at position %d: behind it lies %s; it is cut there",
    )),
    Event(59, "log-recovered", (
        "commit log from %d to %d, %d queues, %d records checked in %.3f s",
    )),
    Event(60, "log-write-retried", (
        "%d writes to the commit log have failed and were tried again (%s): look at the "
            "disk",
    )),
    Event(61, "master-followed", ("the master at %s is followed now",)),
    Event(62, "master-known", ("the master is %s",)),
    Event(63, "master-link-begins", ("following the master at %s from log position %d on",)),
    Event(64, "master-link-ended", ("the link to the master at %s has ended: %s",)),
    Event(65, "master-moved", ("the master is at %s now",)),
    Event(66, "master-not-followed", ("the master at %s is not followed: %s",)),
    Event(67, "master-silent-about-changes", ("the master does not say what changes: %s",)),
    Event(68, "master-since-epoch", (
        "epoch %d begins at log position %d: this broker is the master now, %.0f ms after "
            "its election",
    )),
    Event(69, "master-unreachable", ("the master at %s cannot be reached: %s; trying again",)),
    Event(70, "masters-topic-refused", ("the master's topic %.160r is not taken over: %s",)),
    Event(71, "masters-topics-remade", (
        "%d topics that the former master made last are made again from their queues: "
            "%.500s",
    )),
    Event(72, "masters-topics-unknown", (
        "topics of the former master's last messages are not known: %s",
    )),
    Event(73, "messages-deleted-early", (
        "messages are deleted before store.reserved_hours are over, from commit log "
            "segment %s on: %s",
    )),
    Event(74, "metrics-open-to-others", (
        "other hosts reach http.listen (%s), which asks for no account, and shows names of "
            "topics and groups",
    )),
    Event(75, "more-delayed-not-delivered", ("%d more delayed messages are not delivered",)),
    Event(76, "namesrv-broker-dropped", ("broker %s is dropped: its connection ended",)),
    Event(77, "namesrv-broker-silent", ("broker %s was silent too long and is dropped",)),
    Event(78, "namesrv-connection-closed", ("connection %s closed: %s",)),
    Event(79, "namesrv-connections-refused", (
        "%d connections refused: more than %d, or more than %d of one address",
    )),
    Event(80, "namesrv-keys-without-effect", ("%s: keys without effect here: %s",)),
    Event(81, "namesrv-request-failed", ("request %d failed",)),
    Event(82, "namesrv-silent-about-name", (
        "no name server says who else has this broker's name: %s",
    )),
    Event(83, "new-run-asked", ("stopping, to begin anew as the store says (SIGUSR1)",)),
    Event(84, "new-run-election-lost", (
        "stopping, to begin anew as one who follows: the election is lost",
    )),
    Event(85, "new-run-log-overtaken", ("stopping, to cut what the log of who leads has not",)),
    Event(86, "new-run-queues-changed", ("stopping, to look at all queues' files in a new start",)),
    Event(87, "no-accounts", (
        "no account in %s: every request is refused; mqcore acl init writes a first file",
    )),
    Event(88, "no-slave-account", (
        "no slave is let in: expected the account that slaves have to show "
            "(acl.client_access_key), or replication.unsigned_addresses",
    )),
    Event(89, "offset-journal-left-out", (
        "%s does not belong to %s, which another broker or a person wrote since: it is "
            "left out",
    )),
    Event(90, "offsets-beyond-data", ("%d consumer offsets lay beyond the data: set to its end",)),
    Event(91, "offsets-taken-over", ("%s: %d changed entries taken over from the last run",)),
    Event(92, "open-to-others", (
        "run.namesrv %s",
        "supervisor._say_who_reaches_it %s",
    )),
    Event(93, "open-to-others-hint", ("run.announce %s",)),
    Event(94, "overtaken-log-stays", (
        "the log here has what that of who leads has not, and stays unchanged: %s",
    )),
    Event(95, "overtaken-messages-kept", (
        "%d messages, log positions %d to %d, are not in the log of %s: they are kept in "
            "%s, and cut (%s)",
    )),
    Event(96, "own-account-trouble", ("accounts.current %s: %s",)),
    Event(97, "own-commits-not-removed", (
        "offsets that were committed to this slave cannot be removed: %s",
    )),
    Event(98, "own-commits-unknown", (
        "offsets that were committed to this slave are not known: %s",
    )),
    Event(99, "own-message-not-stored", (
        "a message of the broker's own for %s was not stored: %s",
    )),
    Event(100, "own-message-refused", ("a message for %s: %s",)),
    Event(101, "own-messages-wait", (
        "the writer does not take the broker's own messages: %d wait",
    )),
    Event(102, "peer-log-not-compared", (
        "what %s has shown of its log is compared with nothing: %s",
    )),
    Event(103, "pool-not-locked", (
        "the pool's memory cannot be locked (RLIMIT_MEMLOCK), it may be swapped",
    )),
    Event(104, "process-died", ("%s ended with %s; %s",)),
    Event(105, "process-died-at-stop", ("%s ended with %s while it was to stop",)),
    Event(106, "process-error", ("ends by an error",)),
    Event(107, "process-killed-at-stop", ("%s does not stop (%s): it is killed%s",)),
    Event(108, "process-runs", ("running, pid %d",)),
    Event(109, "process-stopped", ("stopped",)),
    Event(110, "queue-ends-not-written", ("the ends of the queues cannot be written: %s",)),
    Event(111, "queue-files-changed", (
        "%s: files were changed while no broker ran: this broker starts again, and "
            "compares them with the commit log",
    )),
    Event(112, "queue-lives-begin", (
        "%d queues are removed: their next life begins at log position %d",
    )),
    Event(113, "queue-not-removed", ("a queue cannot be removed, trying again: %s",)),
    Event(114, "queues-not-removed", ("queues cannot be removed now: %s",)),
    Event(115, "queues-rebuilt", ("queues and index are written again",)),
    Event(116, "queues-removed", ("%d queues are removed",)),
    Event(117, "record-of-foreign-queue", (
        "the record at log position %d says that it is in a queue besides its own, at an "
            "offset that no broker gave it: it is in its own queue only. Others like it are "
            "passed over without a word",
    )),
    Event(118, "record-without-queue", (
        "the record at log position %d names a topic or a queue that cannot be: it stays "
            "in the log, and no consumer sees it. Others like it are passed over without a word",
    )),
    Event(119, "reply-not-stored", ("a reply for %s was not stored: %s",)),
    Event(120, "request-code-unsupported", (
        "%s (%d)%s is not supported; further requests with this code are counted only",
    )),
    Event(121, "request-codes-unsupported", (
        "more than %d request codes are not supported: further ones are counted only",
    )),
    Event(122, "request-failed", ("request %d from %s failed",)),
    Event(123, "reread-settings-unusable", (
        "settings that were read again cannot be used here, those before stay: %s",
    )),
    Event(124, "role-by-command", (
        "mqcore replication has made this broker %s with id %d; its settings say %s",
    )),
    Event(125, "segment-deleted", ("commit log segment %s is deleted: %s",)),
    Event(126, "service-manager-deaf", ("the service manager does not hear %s: %s",)),
    Event(127, "settings-changed-by-request", ("%d settings changed by request: %s (%s)",)),
    Event(128, "settings-read-again", ("SIGHUP: settings were read again; taken: %s",)),
    Event(129, "settings-unusable", ("SIGHUP: the settings stay unchanged: %s",)),
    Event(130, "settings-wait", ("SIGHUP: these settings wait for the next start: %s",)),
    Event(131, "shared-memory-memfd", (
        "shared memory of %s has no room in /dev/shm: it lies in a memfd",
    )),
    Event(132, "slave-follows", ("slave %s follows from log position %d on",)),
    Event(133, "slave-lag-unknown", ("how many messages slaves are behind is not known: %s",)),
    Event(134, "slave-lines-left-out", ("%d more lines about slaves are left out",)),
    Event(135, "slave-refused", ("ha_master._say %s",)),
    Event(136, "slaves-behind", (
        "the last of %d slaves is %d bytes behind, %d messages, %d ms; %.1f MB/s go to "
            "slaves",
    )),
    Event(137, "slaves-share-id", (
        "the slaves %s and %s have the same broker.id, %d, and count as one: expected "
            "another one in each",
    )),
    Event(138, "socket-unused", (
        "the service manager listens at %s, and no setting has that address: connections "
            "to it wait in vain",
    )),
    Event(139, "standing-failure", ("standing.begin_run %s",)),
    Event(140, "standing-trouble", ("standing._say_unproven %s",)),
    Event(141, "start-failed", ("the broker could not be started",)),
    Event(142, "start-without-changed-settings", (
        "this start is one without the settings that requests changed for it: %s",
    )),
    Event(143, "statistics-full", (
        "statistics: there is no room for more pairs of queue and group: raise "
            "processes.subscription_count_max",
    )),
    Event(144, "stop-begins", ("stopping on %s",)),
    Event(145, "stop-takes-long", ("stopping since %.0f s, at most %.0f s: %s",)),
    Event(146, "stop-unclean", ("the stop is not a clean one: %s did not finish",)),
    Event(147, "stop-waits", (
        "stopping: %s still works; another signal ends it, and loses what it holds",
    )),
    Event(148, "store-back", ("messages are taken again: %s leads to the store again",)),
    Event(149, "store-clock-ahead", (
        "%s: the store clock was %.1f days ahead of the wall clock: it continues with the "
            "last message or the wall clock, whichever is later",
    )),
    Event(150, "store-clock-not-believed", (
        "the clock of the last run is not believed, and a new one begins: what has passed "
            "before counts after a day: %s",
    )),
    Event(151, "store-clock-not-kept", ("the clock cannot be kept for the next run: %s",)),
    Event(152, "store-elsewhere", ("no messages are taken: %s",)),
    Event(153, "stored-filter-refused", ("%s: group %s, topic %s: %s",)),
    Event(154, "stored-topic-ignored", ("%s: topic %.160r is ignored: %s",)),
    Event(155, "table-entry-hidden", ("%.160s is not shown until the next start: %s",)),
    Event(156, "table-not-saved", ("a table cannot be saved, next try in %d ms: %s",)),
    Event(157, "tables-not-saved-at-stop", (
        "tables cannot be saved (%s): nothing that a client was told is lost",
    )),
    Event(158, "tables-not-taken-over", ("tables%s are not taken over: %s",)),
    Event(159, "tables-taken-over", ("tables%s are taken over",)),
    Event(160, "tls-clients-unverified", (
        "tls.verify_client is off: any certificate of a client is taken",
    )),
    Event(161, "tls-files-not-kept", (
        "TLS files cannot be kept for processes that start anew: %s",
    )),
    Event(162, "tls-files-renewed", ("TLS: %s get what the files say now: %s",)),
    Event(163, "tls-files-unusable", ("TLS keeps the files that it has: %s",)),
    Event(164, "tls-test-mode", (
        "TLS TEST MODE: the certificate was made for this run and proves nothing; set "
            "tls.certificate",
    )),
    Event(165, "too-many-topics-to-register", (
        "%d topics are too many for name servers to hear of: %s",
    )),
    Event(166, "topics-remade", (
        "topics.json was lost: %d topics are made again from their queues: %.500s",
    )),
    Event(167, "transaction-checks-wait", (
        "the store takes no writes: undecided transactions are checked later",
    )),
    Event(168, "transaction-records-skipped", (
        "%d records of transactions are passed over: op records that name no half message, "
            "or half messages longer than store.message_size_max_bytes",
    )),
    Event(169, "writes-refused", ("writes are refused: %s (%s)",)),
    Event(170, "writes-refused-disk-full", ("writes are refused: the disk is %d %% full",)),
    Event(171, "writes-refused-dispatcher-behind", (
        "writes are refused: the dispatcher is %d bytes behind, more than "
            "store.dispatch_behind_bytes_max",
    )),
    Event(172, "writes-refused-dispatcher-stands", (
        "writes are refused: the dispatcher has stood still for %d ms, %d bytes are not "
            "readable",
    )),
    Event(173, "writes-taken", (
        "writes are taken again: the dispatcher has caught up",
        "writes are taken again: the disk is no longer too full",
        "writes are taken again",
    )),
    Event(174, "metrics-not-pushed", (
        "metrics cannot be pushed to %s: the collector does not take them",
    )),
    Event(175, "metrics-pushed-again", ("metrics are pushed to %s again",)),
    Event(176, "otlp-extra-missing", (
        "metrics are not pushed to http.otlp_endpoint: %s; pip install mqcore[otlp]",
    )),
    Event(177, "tls-link-failed", ("TLS with %s failed: %s; its connection is closed",)),
    Event(178, "page-error", ("app._error %s %s: %s",)),
    Event(179, "page-write", ("page account=%s from=%s did=%s outcome=%s",)),
    Event(180, "store-set-back", (
        "the log here ends at position %d, and this store had it up to %d: its disk was set "
            "back, to a snapshot or by a loss. It takes part as a new one, which comes into the "
            "set when it has the log again",
    )),
    Event(181, "timer-files-not-written", (
        "the timer's files cannot be written: %s; messages with a time of delivery wait",
    )),
    Event(182, "timed-not-delivered", (
        "the message with a time of delivery at log position %d is not delivered: %s",
    )),
    Event(183, "recall-not-counted", (
        "the recall at log position %d does not count: too many messages of one second are "
            "recalled",
    )),
    Event(184, "pop-state-not-written", (
        "config/popState cannot be written: %s. Acks of POP are answered with an error",
    )),
    Event(185, "pop-state-written", ("config/popState can be written again",)),
    Event(186, "redrive-failed", ("a redrive of %s: %s",)),
    Event(187, "tasks-not-noted", ("%s: tasks are not noted: %s",)),
    Event(188, "tasks-unreadable", ("%s: tasks are not known: %s",)),
)

_NAMES = {line: event.name for event in EVENTS for line in event.lines}


def name_of(record: logging.LogRecord) -> str:
    """The name of a line, "": it has none, as those of libraries."""
    text = record.msg
    if not isinstance(text, str):
        return ""
    return _NAMES.get(text) or _NAMES.get(place(record.module, record.funcName or "", text), "")
