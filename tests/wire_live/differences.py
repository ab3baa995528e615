"""
Where a broker of ours answers otherwise than the recorded stock broker: all of it, with the reason.

The section "Differences from the stock broker" of docs/compatibility.md is made from this table
(`python -m tests.wire_live.differences` prints it); a test keeps both equal. A replay that meets a
difference asserts that it is the one written here, so a row that is no longer true fails.
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mqcore.wire.command import Command

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
TITLE = "## Differences from the stock broker"


@dataclass(frozen=True)
class Difference:
    """One row. code, remark: what we answer, as far as a replay can see it."""

    subject: str
    stock: str
    ours: str
    reason: str
    code: int | None = None
    remark: str = ""


NAME_SERVER = (
    Difference(
        "no route", "105 for an unknown topic: the remark ends in a link to a page of its project",
        "17, the remark without that line", "the page is about another program",
        17, "No topic route info in name server for the topic: ",
    ),
    Difference(
        "fixed setting of the name server", "318 of a setting in its black list: 16 without its"
        " name", "16, the remark names the key", "a refusal says what it is about",
        16, "kvConfigPath cannot be changed",
    ),
    Difference(
        "settings shown by the name server", "319 lists settings of its network library and of its"
        " installation", "they are left out", "nothing in mqcore reads them",
    ),
)
NAMES = (
    Difference(
        "names of consumer groups", "never checked: retry topic and dead letter queue become"
        " folders of any name, those of a group over 120 bytes cannot be stored", "any name that"
        " such a folder can have: no /, NUL, 0x01 or 0x02, not . or .., at most 120 bytes; the"
        " first request that brings another one is answered 1", "a folder lies in the store, and a"
        " group whose retries would be lost hears it at once",
        1, "no consumer group may be called",
    ),
    Difference(
        "names of brokers and clusters", "a name server registers any", "103 with quotes, slashes,"
        " a backslash or control characters in a name or address: 1, with the field; such a name of"
        " a broker's own ends its start", "they stand in the tables of all clients",
        1, "header field brokerName",
    ),
    Difference(
        "positions in the log", "33, 36, 37, 309 and 323 believe a record wherever one can be read,"
        " inside a body too; 37 commits a record that was sent with the prepared flag and without"
        " TRAN_MSG", "only where its queue's entry points, or where the log leads before there is"
        " one: else 1; also for records of a queue that was removed, and for those with that flag,"
        " which never get an entry; 323 takes half messages only", "a client can put whole records"
        " into a body, and could commit a message to a topic that it may not send to",
        1, "there is no message at",
    ),
    Difference(
        "late messages of a topic that shrank", "a delayed message, or the end of a transaction,"
        " goes to the queue that it was sent to", "to one that the topic still has, if that queue"
        " never held a message", "consumers find it",
    ),
    Difference(
        "delayed messages for too many light queues", "their delivery fails again and again",
        "delivered to their own queue alone", "other delayed messages go on",
    ),
)
ADMIN = (
    Difference(
        "settings changed while a broker runs", "25: any key is taken, those of 4.9.8 or not, and"
        " written to the settings file; paths, and values that no start can use, too", "keys of"
        " 4.9.8 are taken; what is not honoured at once is kept for the next start, and the remark"
        " says so; paths and sizes of the store's files: 16; unknown keys and bad values: 1",
        "a peer is not to move files, nor to make a start impossible",
    ),
    Difference(
        "fixed setting of the broker", "25 of a setting in its black list: 16 without its name",
        "16, the remark names the key", "a refusal says what it is about",
        16, "brokerConfigPath cannot be changed",
    ),
    Difference(
        "settings shown by the broker", "26 lists settings of its thread pools, its network library"
        " and its installation", "they are left out; those without a stock name are shown as"
        " section.key", "nothing in mqcore reads them",
    ),
    Difference(
        "statistics", "315 has what transaction checks read and the sizes of delayed messages that"
        " were delivered; a committed transaction counts in no TOPIC_PUT item; GROUP_GET_FALL items"
        " are in a log file only", "neither of the first two; it counts; 315 has the last value of"
        " GROUP_GET_FALL items as their sum; at most 100,000 items, and pulls of as many pairs of"
        " queue and group as processes.subscription_count_max", "counted is what costs nothing"
        " while messages pass",
    ),
    Difference(
        "rows of a queue", "321 with a group: eval is false unless the queue has an extension",
        "eval says whether the row's tag code is wanted; at most 10,000 rows",
        "the question is answered for tags, too",
    ),
    Difference(
        "runtime figures", "28 has no figures of transactions", "five of them besides"
        " (transactionPending, ...)", "they tell how transactions get on",
    ),
)
TABLE = (
    Difference(
        "limits of SQL92 expressions", "none", "an expression over a limit of docs/sql92.md does"
        " not compile", "evaluation takes bounded time and memory",
    ),
    Difference(
        "expressions of pulls", "11 with its own expression: compiled each time, the last 100 are"
        " remembered", "2 when some 1,500 different ones come in 10 s", "their memory is"
        " bounded, and a pull that waits for its expression must find it",
    ),
    Difference(
        "questions to a consumer", "307 and 309 hand on all fields of the request: the tool's"
        " access key and signature, too", "the fields that the question has in RocketMQ; fields of"
        " an account are left out, also of the answer", "a signature that another account holds"
        " can be cut into other requests",
    ),
    Difference(
        "fields before AccessKey", "are signed and ignored", "1, but for the layout of our own"
        " clients ([acl.md](acl.md))", "no text that begins with a layout is taken without it",
        1, "org.apache.rocketmq.acl.common.AclException: ",
    ),
    Difference(
        "encoding of answers", "a pull that was held, and 33, are answered with a JSON header also"
        " when they came with a binary one", "every answer has the encoding of its request",
        "clients read both; one rule is simpler to rely on",
    ),
    Difference(
        "end of a hold", "a pull is answered up to 5 s after its suspendTimeoutMillis",
        "within a second after it", "timers here are looked at more often",
    ),
    Difference(
        "text that is no UTF-8", "bad bytes in a send's properties are stored as U+FFFD",
        "stored as they came", "clients replace them when they read; the bytes are kept",
    ),
    Difference(
        "versions of access control", "52 without `aclEnable`: no answer at all",
        "1, with a remark", "the tool need not wait for its time-out",
    ),
    Difference(
        "codes of 5.x", "343, 345, 351, 352: 3", "answered as a 5.x broker does",
        "its tools and dashboards read them",
    ),
    Difference(
        "figures of the running broker", "28: how long puts and gets took, and how full thread"
        " pools are", "these keys are there and say 0; `brokerActive` and `getTransferredTps` of"
        " 5.x besides", "there are no thread pools; tools read the keys without asking for them",
    ),
    Difference(
        "pulls of 5.x lite consumers", "361 is no code of 4.9.8: 3", "served as 11",
        "a DefaultLitePullConsumer of 5.x gets its messages",
    ),
    Difference(
        "SQL92 expressions by default", "`enablePropertyFilter` is false", "true",
        "evaluation is native and bounded",
    ),
    Difference(
        "large requests", "any request may have 16 MiB", "so it may, four of a serving process at"
        " a time, others wait; above 393,216 bytes the JSON of a body has to be strict",
        "memory is bounded; Java's relaxed JSON takes a hundred times as long to read",
    ),
    Difference(
        "consumer offsets", "as many as the heap holds, written whole every 5 s",
        "as many as `broker.consumer_offsets_bytes_max` holds, at most half of the free room for"
        " one address, beyond that 1; a large table is written whole every few minutes, and a"
        " journal in between",
        "commits name any group and topic; a rewrite of 60 MB every 5 s costs more than the"
        " messages",
    ),
    Difference(
        "many messages in one batch", "only the body's size counts (13 above 4 MiB)",
        "13 also when the stored records together exceed 8 MiB (some 40,000 tiny messages)",
        "a batch is handed over in one piece",
    ),
    Difference(
        "times of delivery of 5.x", "a message with `TIMER_DELAY_SEC`, `TIMER_DELAY_MS` or"
        " `TIMER_DELIVER_MS` is acknowledged and delivered at once",
        "delivered at that time, as 5.x does; what is no time, or too far ahead: 13;"
        " `broker.timer_messages = \"at_once\"` does as stock",
        "the producer asked for a later time",
        13, "property TIMER_",
    ),
    Difference(
        "pulls of any number", "a pull that asks for n messages looks at n entries of its queue, at"
        " most at the rest of the file", "at 1,024; the answer says where to go on",
        "others wait while a pull is answered",
    ),
    Difference(
        "bit 30 of a pull's sysFlag", "means nothing", "a reader that replays: its answers have up"
        " to 1,024 messages and 128 KiB, old messages or not", "8 old messages in an answer, or 32,"
        " are a call for little; readers of ours say it, to stock brokers, too",
    ),
    Difference(
        "answers that nobody reads", "kept, however many", "requests are not read while 1 MiB of"
        " answers waits; above 32 MiB the connection is closed", "memory is bounded",
    ),
    Difference(
        "questions that nobody reads", "39 goes to another producer of the group while the channel"
        " is not writable; if three in a row are not, the last of them gets it, however much waits",
        "the same while 1 MiB waits; dropped above 4 MiB, and asked again in the next round",
        "memory is bounded",
    ),
    Difference(
        "a group that is forbidden to consume", "its pulls that wait are refused (16) when a"
        " message comes", "they get that message; its next pulls are refused",
        "a pull that waits knows what it wants, not for whom",
    ),
    *ADMIN,
    *NAMES,
    Difference(
        "clients that fall silent", "dropped without a word: other members of their groups notice"
        " with their next own rebalance", "the other members are told at once (40)",
        "queues are taken over sooner",
    ),
    Difference(
        "offsets beyond the data", "kept when a power cut took the log's end: the group skips as"
        " many of the messages that come next", "set to the end of the queue at the start",
        "nothing is skipped",
    ),
    Difference(
        "offsets of a deleted topic", "215 keeps them: in a topic of that name that is made again,"
        " a group skips as many messages", "they go with the topic, as in 5.x",
        "nothing is skipped",
    ),
    Difference(
        "clone of all offsets", "314 without a topic copies nothing", "copies all of the group's"
        " topics", "what the request says",
    ),
    Difference(
        "smallest offsets", "308 forgets the offsets of the groups in filterGroups for good",
        "leaves them out of this one answer", "a question changes nothing",
    ),
    Difference(
        "reset with a client that is too old", "222 tells the members before it, then is refused",
        "refused before anybody is told", "all or nothing",
    ),
    *NAME_SERVER,
)
# serverX... of its network library, and paths of its own installation: nothing here reads them.
NAMESRV_SETTINGS_LEFT_OUT = {
    "serverSocketBacklog", "writeBufferHighWaterMark", "serverWorkerThreads",
    "serverSelectorThreads", "configBlackList", "writeBufferLowWaterMark",
    "serverSocketRcvBufSize", "serverAsyncSemaphoreValue", "configStorePath", "clusterTest",
    "serverSocketSndBufSize", "serverOnewaySemaphoreValue", "serverCallbackExecutorThreads",
    "rocketmqHome", "useEpollNativeSelector", "serverPooledByteBufAllocatorEnable",
}
BY_SUBJECT = {row.subject: row for row in TABLE}


def assert_known(subject: str, expected: Command | None, found: Command) -> None:
    """The answer is the one that the table has for `subject`, and not the recorded one."""
    row = BY_SUBJECT[subject]
    if row.code is not None:
        assert found.code == row.code, f"{subject}: {found.remark}"
        assert row.remark in (found.remark or "")
    if expected is not None:
        assert (expected.code, expected.remark, expected.codec) != (
            found.code, found.remark, found.codec
        ), f"{subject}: no difference any more"


def section() -> str:
    """The rows as Markdown, from the title to the end of the table."""
    lines = [
        TITLE, "",
        "Found by replaying recorded exchanges (`tests/wire_live`); everything else in them is"
        " answered alike: codes,", "remarks, header fields, encodings, bodies."
        " Made from `tests/wire_live/differences.py`.", "",
        "| subject | stock 4.9.8 | mqcore | why |", "|---|---|---|---|",
    ]
    lines += [f"| {row.subject} | {row.stock} | {row.ours} | {row.reason} |" for row in TABLE]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(section(), end="")
