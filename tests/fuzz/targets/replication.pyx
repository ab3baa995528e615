"""
Logs that follow each other: what a slave makes of a master's stream, and a master of a slave's reports.

The rings, the log and the sockets are real. What the slave hands to its writer is held against the
stream, against the same stream in other pieces, and against what verification says of the same bytes.
"""
import os
import tempfile
from pathlib import Path

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from mqcore.endian cimport load_i32, load_i64, store_i32, store_i64
from mqcore.layout cimport (
    APPEND_RAW,
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    PRODUCER_HA_SLAVE,
    PUT_OK,
    RECORD_BODY_CRC,
    RECORD_MAGIC,
    RECORD_SIZE,
    AppendHead,
)
from mqcore.replication.greet cimport (
    ANNOUNCE,
    FRAME_HEAD_SIZE,
    GREETING_FIXED_SIZE,
    REPORT_SIZE,
    TELL,
    TELL_SIZE,
)
from mqcore.replication.links cimport OUR_BATCH_BYTES, Link, Master
from mqcore.replication.master cimport master_turn
from mqcore.replication.master_loop cimport MasterLoop
from mqcore.replication.slave cimport Slave, believe, link_begin, link_take
from mqcore.replication.slave_loop cimport SlaveLoop
from mqcore.shm.ring cimport Ring, ring_next, ring_release
from mqcore.shm.segment cimport Segment, shm_consumer
from mqcore.store.crc32 cimport body_crc
from mqcore.store.log.appender cimport RawRecord
from mqcore.store.log.raw cimport QUEUE_OFFSET_BITS, RAW_RECORDS_MAX, RawBytes, raw_check
from mqcore.store.record cimport PARSE_RECORD, RecordView, record_parse, record_place
from mqcore.store.verify.findings cimport (
    FOUND_BAD_RECORD,
    FOUND_BLANK_SIZE,
    FOUND_NO_BLANK,
    findings_open,
)
from mqcore.store.verify.queues cimport queues_close, queues_open
from mqcore.store.verify.walk cimport Walk, walk
from mqcore.store.verify.window cimport (
    SegmentFile,
    log_files_close,
    log_files_open,
    window_close,
    window_open,
)

from tests.fuzz.targets.input cimport Input, hold, input_of, take_byte

from mqcore.participants import HA_MASTER, HA_SLAVE
from mqcore.replication import epochs, greeting
from mqcore.replication.master_loop import MasterLoop as Sends
from mqcore.replication.slave_loop import SlaveLoop as Follows
from tests.store.harness import Run, new_segment

cdef extern from "<fcntl.h>" nogil:
    int open_file "open"(const char* path, int flags, ...)
    int O_RDWR
    int O_CREAT

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    ssize_t pwrite(int fd, const void* data, size_t size, long place)

cdef extern from "<sys/socket.h>" nogil:
    int socketpair(int domain, int type, int protocol, int* ends)
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    ssize_t c_receive "recv"(int fd, void* data, size_t size, int flags)
    int AF_UNIX, SOCK_STREAM, SOCK_NONBLOCK, MSG_NOSIGNAL

cdef enum:
    SEGMENT_SIZE = 512                # a few records: ends of segments are near
    SEGMENTS = 8
    LOG_SIZE = SEGMENT_SIZE * SEGMENTS
    STREAM_MAX = 2 * LOG_SIZE         # a frame for each few bytes
    READ_AHEAD = 2 * SEGMENT_SIZE
    MASTER_SEGMENT_SIZE = 4096
    MASTER_LOG_MAX = 4 * MASTER_SEGMENT_SIZE
    BATCH_BYTES = 1000
    PIECES = 3                        # of reports, with the log growing in between
    LATER_MS = 10_000

cdef struct Taken:                    # what one way of feeding has brought to the writer
    uint8_t bytes[LOG_SIZE]
    int64_t start                     # log position of bytes[0]
    int64_t size
    int64_t refused                   # bytes of a request that the writer would not take, behind these
    int64_t blank                     # bytes behind a blank, which nobody sends

cdef Slave* slave
cdef RawRecord records[RAW_RECORDS_MAX]
cdef Ring appends
cdef int files[SEGMENTS]
cdef Walk* verifier = <Walk*>calloc(1, sizeof(Walk))
cdef Taken* at_once = <Taken*>calloc(1, sizeof(Taken))
cdef Taken* in_pieces = <Taken*>calloc(1, sizeof(Taken))
cdef uint8_t stream[STREAM_MAX]
cdef uint8_t zeros[SEGMENT_SIZE]
cdef Master* master
cdef uint8_t master_log[MASTER_LOG_MAX]
cdef int64_t master_first, master_end
cdef object kept = []


# -- a slave ---------------------------------------------------------------------------------------

cdef int64_t mended(uint8_t* log, int64_t size, int64_t start) noexcept nogil:
    """Bytes that are records as far as their sizes go get the places and sums of their own."""
    cdef int64_t at = 0, rest
    cdef RecordView record
    while size - at >= BLANK_SIZE_MIN:
        rest = SEGMENT_SIZE - (start + at) % SEGMENT_SIZE
        if load_i32(log + at + RECORD_MAGIC) == MAGIC_BLANK:
            if not load_i32(log + at + RECORD_SIZE) & 1:     # else it is wrong, mostly
                store_i32(log + at + RECORD_SIZE, <int32_t>rest)
            at += rest
            continue
        if record_parse(log + at, size - at, &record) != PARSE_RECORD:
            return size
        record_place(log + at, record.queue_offset, start + at, record.store_time_ms)
        store_i32(log + at + RECORD_BODY_CRC, body_crc(record.body, record.body_length))
        at += record.size
    return size


cdef int64_t framed(const uint8_t* log, int64_t size, int64_t start, int64_t each,
                    bint tells) noexcept nogil:
    """
    The log as a master sends it, in frames of `each` bytes that end with a segment, in `stream`. tells:
    before each of them, that others have what came before.
    """
    cdef int64_t at = 0, out = 0, part
    while at < size:
        if tells and out + FRAME_HEAD_SIZE + TELL_SIZE <= STREAM_MAX:
            store_i64(stream + out, TELL)
            store_i32(stream + out + 8, TELL_SIZE)
            store_i64(stream + out + FRAME_HEAD_SIZE, start + at)
            out += FRAME_HEAD_SIZE + TELL_SIZE
        part = min(min(each, size - at), SEGMENT_SIZE - (start + at) % SEGMENT_SIZE)
        if out + FRAME_HEAD_SIZE + part > STREAM_MAX:
            break
        memset(stream + out, 0, FRAME_HEAD_SIZE)
        store_i32(stream + out + 4, <int32_t>(start + at))
        store_i32(stream + out + 8, <int32_t>part)
        memcpy(stream + out + FRAME_HEAD_SIZE, log + at, part)
        out += FRAME_HEAD_SIZE + part
        at += part
    return out


cdef void take(Taken* taken) noexcept nogil:
    """As the writer: whole requests, one behind the other, until one is no part of a log."""
    cdef uint8_t* record
    cdef int32_t kind
    cdef AppendHead* head
    cdef RawBytes raw
    cdef int64_t position
    while ring_next(&appends, &record, &kind) >= 0:
        head = <AppendHead*>record
        hold(kind == APPEND_RAW, "a slave hands over raw bytes")
        position = <int64_t>head.queue_hash
        if taken.size == 0 and not taken.refused:
            taken.start = position
        if taken.refused or taken.size + head.bytes_total > LOG_SIZE:
            taken.refused = max(taken.refused, <int64_t>1)
            continue
        hold(position == taken.start + taken.size, "requests follow each other")
        memcpy(taken.bytes + taken.size, append_bytes(head), head.bytes_total)
        if raw_check(append_bytes(head), head.bytes_total, position, SEGMENT_SIZE, records,
                     &raw) != PUT_OK:
            taken.refused = head.bytes_total
            continue
        taken.size += head.bytes_total
        if raw.ends_segment:
            taken.blank = SEGMENT_SIZE - (taken.start + taken.size) % SEGMENT_SIZE
            taken.blank = 0 if taken.blank == SEGMENT_SIZE else taken.blank
            if taken.size + taken.blank > LOG_SIZE:
                taken.refused = 1
                continue
            memset(taken.bytes + taken.size, 0, taken.blank)
            taken.size += taken.blank
    ring_release(&appends)


cdef inline const uint8_t* append_bytes(const AppendHead* head) noexcept nogil:
    return <const uint8_t*>head + sizeof(AppendHead)


cdef void follow(Taken* taken, const uint8_t* data, int64_t size, int64_t each, int64_t start,
                 bint asked) noexcept nogil:
    """The stream in pieces of `each` bytes, by a slave whose log ends at `start`, and that has asked (HS9)."""
    cdef int64_t at = 0, part
    cdef int[2] ends
    taken.start = taken.size = taken.refused = taken.blank = 0
    hold(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "there are sockets")
    link_begin(slave, ends[0])
    slave.connecting = False
    slave.reported = start
    slave.asked = asked
    slave.shm.replica_gate.told = 0
    while at < size and slave.fd >= 0:
        part = min(each, size - at)
        hold(c_send(ends[1], data + at, part, MSG_NOSIGNAL) == part, "the socket takes a piece")
        at += part
        read_all(taken)
    if slave.fd >= 0:
        hold(slave.next_position + slave.have == slave.next or slave.next < 0,
             "what came is with the writer, or waits")
        close(slave.fd)
    close(ends[1])
    slave.fd = -1
    slave.notes_count = 0


cdef void read_all(Taken* taken) noexcept nogil:
    """What the socket has, as turns of the loop would take it."""
    cdef int turns = 0
    slave.readable = True
    while slave.fd >= 0 and slave.readable:
        link_take(slave, 0)
        take(taken)
        hold(slave.have <= (slave.claim_bytes if slave.claim == NULL else slave.room),
             "what waits lies where there is room")
        if slave.fd >= 0 and slave.greeted and slave.left == 0:
            believe(slave)
        turns += 1
        hold(turns <= STREAM_MAX, "every turn gets on")


cdef bint is_sound(const Taken* taken, int64_t size) noexcept nogil:
    """Whether verification calls this much of a log sound, with nothing behind it."""
    cdef int64_t first = taken.start // SEGMENT_SIZE * SEGMENT_SIZE, at, part, from_
    cdef int32_t i, count = <int32_t>((taken.start + size - 1) // SEGMENT_SIZE - first // SEGMENT_SIZE) + 1
    if count > SEGMENTS:
        return True
    for i in range(count):
        pwrite(files[i], zeros, SEGMENT_SIZE, 0)
        from_ = max(first + i * SEGMENT_SIZE, taken.start)
        part = min(first + (i + 1) * SEGMENT_SIZE, taken.start + size) - from_
        pwrite(files[i], taken.bytes + (from_ - taken.start), part, from_ % SEGMENT_SIZE)
        verifier.files.segments[i] = SegmentFile(base=i * SEGMENT_SIZE, size=SEGMENT_SIZE)
    verifier.files.count = count
    window_close(&verifier.window)
    window_close(&verifier.look)
    queues_close(&verifier.queues)
    window_open(&verifier.window, &verifier.files, READ_AHEAD)
    window_open(&verifier.look, &verifier.files, READ_AHEAD)
    queues_open(&verifier.queues, &verifier.files, &verifier.findings, b"/dev/null", b"/dev/null", 16)
    findings_open(&verifier.findings)
    verifier.damaged = False
    verifier.records = verifier.last_time_ms = 0
    verifier.position = taken.start - first
    verifier.end = -1
    walk(verifier, LOG_SIZE)
    return (verifier.end >= taken.start - first + size
            and not verifier.findings.counts[<int>FOUND_BAD_RECORD]
            and not verifier.findings.counts[<int>FOUND_BLANK_SIZE]
            and not verifier.findings.counts[<int>FOUND_NO_BLANK])


cdef void to_the_front(Taken* taken) noexcept nogil:
    """
    Files are called by their positions, so the log is moved to the front of all positions: whole
    segments, and the records with them.
    """
    cdef int64_t first = taken.start // SEGMENT_SIZE * SEGMENT_SIZE, at = 0
    cdef int64_t size = taken.size + taken.refused
    cdef RecordView record
    if first == 0:
        return
    while size - at >= BLANK_SIZE_MIN:
        if load_i32(taken.bytes + at + RECORD_MAGIC) == MAGIC_BLANK:
            at += SEGMENT_SIZE - (taken.start + at) % SEGMENT_SIZE
            continue
        if record_parse(taken.bytes + at, size - at, &record) != PARSE_RECORD:
            break
        record_place(taken.bytes + at, record.queue_offset, record.log_position - first,
                     record.store_time_ms)
        at += record.size
    taken.start -= first


cdef void hold_told(uint8_t word, int64_t start) noexcept nogil:
    """What the slave was told last, before its link ended or at the stream's end."""
    cdef int64_t told = slave.shm.replica_gate.told
    hold(told >= 0 and (word & 4 or told == 0), "what is told is a position, and to who asked")
    hold(word & 3 or told == 0 or start <= told < start + LOG_SIZE, "it is what the master said")


cdef int master_frames(const uint8_t* data, size_t size) noexcept nogil:
    """
    | a stream, or a log that becomes one | bytes of a frame, of a piece, segment that it begins with,
    which of the two: a byte each |
    """
    cdef Input left = input_of(data, size)
    cdef uint8_t word = take_byte(&left)
    cdef int64_t start = (take_byte(&left) & 1) * SEGMENT_SIZE
    cdef int64_t each = 1 + take_byte(&left), frame = 16 + take_byte(&left), length
    cdef uint8_t* log
    if word & 1:
        length = min(left.left, <int64_t>STREAM_MAX)
        memcpy(stream, data, length)
    else:
        length = min(left.left, <int64_t>LOG_SIZE)
        log = at_once.bytes
        memcpy(log, data, length)
        length = framed(log, mended(log, length, start), start, frame, word & 4)
        if word & 2 and length:                             # one byte of it is another
            stream[(word * 37 + each * 251 + frame) % length] ^= <uint8_t>(1 << (word >> 5))
    follow(at_once, stream, length, STREAM_MAX, start, word & 4)
    hold_told(word, start)
    follow(in_pieces, stream, length, each, start, word & 4)
    hold_told(word, start)
    hold(at_once.size <= in_pieces.size, "the link's end comes no earlier in pieces")
    if at_once.size:
        hold(at_once.start == in_pieces.start
             and memcmp(at_once.bytes, in_pieces.bytes, at_once.size) == 0,
             "pieces change nothing of what is handed over")
    to_the_front(in_pieces)
    if in_pieces.size:
        hold(is_sound(in_pieces, in_pieces.size), "what the writer takes is sound")
    length = in_pieces.size + in_pieces.refused
    if in_pieces.refused > 1 and length <= LOG_SIZE and not (
            ends_beside_a_blank(in_pieces, length) or is_too_far(in_pieces, length)):
        hold(not is_sound(in_pieces, length), "what is refused is not sound")
    return 0


cdef bint ends_beside_a_blank(const Taken* taken, int64_t size) noexcept nogil:
    """
    Refused though verification has nothing to say: bytes that leave no room for a blank, or cross a
    segment's end; a segment that is nothing but one.
    """
    cdef int64_t start = taken.start + taken.size
    cdef int64_t rest = SEGMENT_SIZE - (taken.start + size) % SEGMENT_SIZE
    return (rest < BLANK_SIZE_MIN or rest == SEGMENT_SIZE
            or start // SEGMENT_SIZE != (taken.start + size - 1) // SEGMENT_SIZE
            or (start % SEGMENT_SIZE == 0
                and load_i32(taken.bytes + taken.size + RECORD_MAGIC) == MAGIC_BLANK))


cdef bint is_too_far(const Taken* taken, int64_t size) noexcept nogil:
    """Refused by an offset that is none in any queue: what verification says only beside the queue."""
    cdef int64_t at = taken.size
    cdef RecordView record
    while size - at >= BLANK_SIZE_MIN and record_parse(
            taken.bytes + at, size - at, &record) == PARSE_RECORD:
        if record.queue_offset >> QUEUE_OFFSET_BITS:
            return True
        at += record.size
    return False


# -- a master --------------------------------------------------------------------------------------

cdef struct Heard:                    # by the slave's end of the socket
    bint begun                        # with a frame of the log
    int64_t next                      # where the next frame has to begin
    bint ours
    int64_t told

cdef void listen(int fd, Heard* heard) noexcept nogil:
    """All that is there: frames that follow each other, and the log in them."""
    cdef uint8_t bytes[2 * MASTER_LOG_MAX]
    cdef ssize_t got = c_receive(fd, bytes, sizeof(bytes), 0)
    cdef int64_t at = 0, position
    cdef int32_t size
    while got - at >= FRAME_HEAD_SIZE:
        position = load_i64(bytes + at)
        size = load_i32(bytes + at + 8)
        at += FRAME_HEAD_SIZE
        hold(0 <= size <= got - at, "a frame is whole")
        if position == ANNOUNCE:
            hold(not heard.begun and size >= GREETING_FIXED_SIZE, "a greeting comes first")
            heard.ours = True
            at += size
            continue
        if position == TELL:
            hold(heard.ours and master.links[0].asks and size == TELL_SIZE,
                 "who has asked is told")
            hold(heard.told < load_i64(bytes + at) <= master.shm.replica_gate.replicated,
                 "what is told grows, and is so")
            heard.told = load_i64(bytes + at)
            at += size
            continue
        hold(not heard.begun or position == heard.next, "frames follow each other")
        hold(master_first <= position and position + size <= load_published(),
             "only what is published is sent")
        hold(size == 0 or position // MASTER_SEGMENT_SIZE
             == (position + size - 1) // MASTER_SEGMENT_SIZE,
             "a frame lies in one segment")
        hold(size <= (OUR_BATCH_BYTES if heard.ours else BATCH_BYTES), "a frame has its limit")
        hold(memcmp(bytes + at, master_log + position, size) == 0, "a frame is the log")
        heard.begun = True
        heard.next = position + size
        at += size
    hold(got <= 0 or at == got, "nothing stands between frames")


cdef inline int64_t load_published() noexcept nogil:
    return master.shm.log.published


cdef int slave_reports(const uint8_t* data, size_t size) noexcept nogil:
    """| numbers of 8 bytes | how many of them at first, how far the log is then: a byte each |"""
    cdef Input left = input_of(data, size)
    cdef int64_t cut = REPORT_SIZE * take_byte(&left) + take_byte(&left) % REPORT_SIZE
    cdef int64_t published = master_end - (take_byte(&left) << 4), replicated = 0, at = 0, part
    cdef int64_t now_ms = 1_000_000
    cdef int ends[2]
    cdef int i
    cdef bint more
    cdef Link* l = &master.links[0]
    cdef Heard heard
    memset(&heard, 0, sizeof(Heard))
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)
    memset(l, 0, sizeof(Link))
    l.fd = ends[0]
    l.file = -1
    l.head_sent = FRAME_HEAD_SIZE
    l.opened_ms = l.heard_ms = l.sent_ms = now_ms
    master.shm.replica_gate.replicated = 0
    master.shm.replica_gate.present = 0
    master.shm.log.published = max(published, master_first)
    for i in range(PIECES):
        part = min(left.left - at, cut) if i + 1 < PIECES else left.left - at
        if part:
            c_send(ends[1], data + at, part, MSG_NOSIGNAL)
        at += part
        l.readable = True
        l.blocked = False
        master_turn(master, now_ms, &more)
        listen(ends[1], &heard)
        hold(replicated <= master.shm.replica_gate.replicated <= load_published(),
             "the mark is of the log, and never goes back")
        hold(master.shm.replica_gate.present == l.reported, "who has reported is present")
        if l.fd >= 0 and l.reported:
            hold(0 <= l.acked <= max(l.position, load_published()), "a report is of what was sent")
            hold(l.greet.bytes != NULL or not heard.begun or l.position == heard.next,
                 "a link is where its frames are")
            hold(master.shm.replica_gate.replicated >= l.acked, "who has most is the mark")
        replicated = master.shm.replica_gate.replicated
        master.shm.log.published = master_end
        now_ms += LATER_MS
        l.heard_ms = now_ms                                  # a silence is not the matter here
        if l.fd < 0:
            break
    close(ends[1])
    l.readable = True
    l.blocked = False
    master_turn(master, now_ms, &more)
    if l.fd >= 0:                                            # what it said was read first
        l.readable = True
        master_turn(master, now_ms, &more)
    hold(l.fd < 0 and l.file < 0 and l.greet.bytes == NULL, "nothing stays of who is gone")
    master.notes_count = 0
    return 0


def begin() -> None:
    """What the targets need; once."""
    global slave, master, master_first, master_end
    cdef SlaveLoop follows
    cdef MasterLoop sends
    cdef Segment segment
    cdef int i
    cdef bytes log
    folder = tempfile.TemporaryDirectory(prefix="mqcore-fuzz-")
    root = Path(folder.name)
    segment = new_segment(segment_size=SEGMENT_SIZE, slave=True)
    segment.begin_incarnation(HA_SLAVE.slot)
    follows = Follows(segment)
    slave = follows.s
    shm_consumer(&segment.shm, &segment.shm.head.appends[<int>PRODUCER_HA_SLAVE], &appends)
    (root / "slave").mkdir()
    for i in range(SEGMENTS):
        path = os.fsencode(root / "slave" / f"{i * SEGMENT_SIZE:020d}")
        files[i] = open_file(path, O_RDWR | O_CREAT, 0o600)
        assert files[i] >= 0
    assert log_files_open(&verifier.files, os.fsencode(root / "slave"), SEGMENTS) == 0
    verifier.window.fd = verifier.look.fd = verifier.queues.peek.fd = -1
    kept.extend([folder, segment, follows])
    sends = sender(root / "master")
    master = sends.m
    segment = kept[len(kept) - 1]
    master_end = segment.shm.log.published
    log = b"".join(path.read_bytes() for path in sorted((root / "master/commitlog").iterdir()))
    memcpy(master_log, <const char*>log, len(log))
    # its first segment is gone, as after a while
    master_first = segment.shm.log.first = MASTER_SEGMENT_SIZE
    (root / "master/commitlog" / f"{0:020d}").unlink()


def sender(root: Path) -> Sends:
    """A master with three segments of log, the first of which may be deleted."""
    run = Run(root, segment_size=MASTER_SEGMENT_SIZE)
    run.segment.begin_incarnation(HA_MASTER.slot)
    writer, probe = run.writer("async", 0), run.probe()
    while run.segment.log_state()["published"] < 2.5 * MASTER_SEGMENT_SIZE:
        assert probe.send("topic", 0, [bytes(150)], opaque=0)
        writer.run(1)
        probe.take()
    words = greeting.words("b", "c", MASTER_SEGMENT_SIZE, epochs.first("b/0", 0, 1))
    made = Sends(run.segment, os.fsencode(run.log_folder), [], gated=True, batch_bytes=BATCH_BYTES,
                 greeting=words)
    kept.extend([writer, probe, run, made, run.segment])
    return made


TARGETS = {"master_frames": <size_t>&master_frames, "slave_reports": <size_t>&slave_reports}
