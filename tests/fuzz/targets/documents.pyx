"""
What Python reads of files and of other brokers: access rules, epochs, greetings, checkpoints, backups.
Lines of Python count as coverage there (harness.c).
"""
import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from tests.fuzz.targets.input cimport Input, input_of, take_byte

from mqcore.acl import addresses, documents
from mqcore.acl.documents import AclFileError
from mqcore.acl.rules import Rules, read_file
from mqcore.backup import manifest, stream
from mqcore.backup.errors import BadBackupError
from mqcore.backup.stream import TarWriter
from mqcore.replication import epochs, greeting
from mqcore.replication.epochs import EpochsError, common_end
from mqcore.replication.greeting import OtherLogError
from mqcore.shm.access import AccessBoard, AccessCopy
from mqcore.store import checkpoint
from mqcore.store.crc32 import crc32c
from mqcore.workers.coordinator.shared_tables import table_of
from tests.acl.test_documents import LEFT_OUT, as_texts, ours
from tests.store.harness import new_segment

SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
PURE = 16                              # one in so many is read by PyYAML's own parser, too
HOSTS = tuple(addresses.packed(host) for host in (
    "0.0.0.0", "1.1.1.1", "1.1.1.2", "10.0.0.1", "255.255.255.255", "::1", "1::2", "ffff::ffff"))
folder = tempfile.TemporaryDirectory(prefix="mqcore-fuzz-")
root = Path(folder.name)


cdef bytes made_of(const uint8_t* data, size_t size):
    return PyBytes_FromStringAndSize(<const char*>data, size)


# -- access rules ----------------------------------------------------------------------------------

segment = new_segment(access_bytes=1 << 20)
board, copy = AccessBoard(segment), AccessCopy(segment)


def without_libyaml(raw: bytes) -> object:
    native, documents._Parser = documents._Parser, None
    try:
        return ours(raw)
    finally:
        documents._Parser = native


cdef int access_file(const uint8_t* data, size_t size) noexcept with gil:
    """A document as PyYAML reads it; the rules in it, as they are written again and looked up."""
    raw = made_of(data, size)
    value, refused = ours(raw)
    if refused:
        return 0
    if not LEFT_OUT.search(raw):
        try:
            read = as_texts(yaml.load(raw, SAFE))
        except yaml.composer.ComposerError as error:
            assert "duplicate anchor" in str(error)    # which YAML allows, and PyYAML alone does not
        else:
            assert value == read, "what is taken is what PyYAML reads"
    if crc32c(raw) % PURE == 0:
        other, other_refused = without_libyaml(raw)
        assert other_refused or value == other, "both parsers read the same"
    try:
        file = read_file("f", raw)
    except AclFileError:
        return 0
    again = read_file("f", documents.dumped(file.document))
    assert (again.accounts, again.white, again.version) == (file.accounts, file.white, file.version)
    look_up(Rules([file]))
    return 0


def look_up(rules: Rules) -> None:
    """The table that serving processes have says what the rules say."""
    board.write(table_of(rules))
    assert copy.look()
    for host in HOSTS:
        assert copy.is_white(host) == addresses.contains(rules.white, host)
    for account in rules.accounts.values():
        key = account.access_key.encode()
        assert copy.has(key)
        for name, bits in account.permissions.items():
            assert copy.permission(key, b"", name.encode()) == bits
        assert not copy.has(key + b"x") or key.decode() + "x" in rules.accounts


# -- replication -----------------------------------------------------------------------------------

cdef int epochs_file(const uint8_t* data, size_t size) noexcept with gil:
    """| a table as it lies in a store, or as brokers tell it | where two logs end, a byte each |"""
    cdef Input left = input_of(data, size)
    my_end, their_end = take_byte(&left), take_byte(&left)
    raw = made_of(data, left.left)
    path = root / epochs.FILE_NAME
    path.write_bytes(raw)
    try:
        standing = epochs.read(root)
    except EpochsError:
        standing = None
    try:
        history = epochs.decode(raw)
    except EpochsError:
        assert standing is None, "a store's table is one that brokers tell"
        return 0
    assert epochs.decode(epochs.encode(history)) == history
    if standing is not None:
        epochs.write(root, standing)
        assert epochs.read(root) == standing
    assert common_end(history, my_end, history, their_end) == min(my_end, their_end) or (
        history.epochs[0].start > min(my_end, their_end))
    begun = history.begun(history.last.start + my_end, "m/0", 1)
    if history.last.number < epochs.NUMBER_MAX and begun.last.start <= epochs.NUMBER_MAX:
        assert epochs.decode(epochs.encode(begun)) == begun
    both = [common_end(*one) for one in ((history, my_end, begun, their_end),
                                         (begun, their_end, history, my_end))]
    assert both[0] == both[1], "where two logs part is the same from both sides"
    return 0


cdef int greeting_words(const uint8_t* data, size_t size) noexcept with gil:
    """| what a master says before the log | where the slave's log ends, a byte |"""
    cdef Input left = input_of(data, size)
    my_end = take_byte(&left)
    try:
        heard = greeting.decode(made_of(data, left.left))
    except OtherLogError:
        return 0
    said = greeting.HEAD.pack(heard.end, heard.checked_from, heard.checked_to, heard.crc32c)
    said += greeting.words(heard.broker, heard.cluster, heard.segment_bytes, heard.history,
                           heard.role)
    assert greeting.decode(said) == replace(heard, tells=True), "and so says every master of ours"
    asked = []
    try:
        greeting.check_names(heard, heard.broker, heard.cluster, heard.segment_bytes)
        greeting.check_log(heard, heard.history, my_end, lambda a, b: asked.append((a, b)) or heard.crc32c)
    except OtherLogError as error:
        assert "\n" not in str(error)
        return 0
    assert my_end == 0 or asked == [(heard.checked_from, my_end)], "a log is believed by its bytes"
    return 0


# -- a store's checkpoint --------------------------------------------------------------------------

cdef int checkpoint_file(const uint8_t* data, size_t size) noexcept with gil:
    """Believed as far as it goes, and written as it was read."""
    raw = made_of(data, size)
    path = root / "checkpoint"
    path.write_bytes(raw)
    found = checkpoint.read(path)
    assert found == checkpoint.Checkpoint() or len(raw) >= checkpoint.TIMES.size
    assert 0 <= found.replay_from_ms <= max(0, found.log_time_ms)
    checkpoint.write(path, found)
    assert checkpoint.read(path) == found
    if len(raw) >= checkpoint.TIMES.size:
        assert path.read_bytes()[:checkpoint.TIMES.size] == raw[:checkpoint.TIMES.size]
    return 0


# -- backups ---------------------------------------------------------------------------------------

cdef int backup_manifest(const uint8_t* data, size_t size) noexcept with gil:
    """| a manifest, or what its sum is of | odd: the sum is made here |"""
    cdef Input left = input_of(data, size)
    cdef bint seals = take_byte(&left) & 1
    raw = made_of(data, left.left)
    if seals:
        raw = b'{"backup":%s,"crc32c":"%08x"}' % (raw, crc32c(raw))
    try:
        found, sum_ = manifest.decode(raw, "m")
    except BadBackupError as error:
        assert "\n" not in str(error), "a refusal is one line"
        return 0
    again, _ = manifest.decode(manifest.encode(found), "m")
    assert again == found
    for entry in found.files:
        path = root / entry.name
        assert path.resolve() == path and path.is_relative_to(root), "a name leads nowhere else"
        assert entry.stored <= entry.length
    return 0


class Memory:
    """The folder that a stream is unpacked into: a disk costs more than all that is tested."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}

    @contextlib.contextmanager
    def written(self, path: Path, size: int) -> Iterator[object]:
        name = os.fspath(path.relative_to(root))
        if name in self.files:
            raise FileExistsError
        content = self.files[name] = bytearray()

        def put(piece: bytes, at: int) -> None:
            assert at == len(content), "pieces follow each other"
            content.extend(piece)

        yield put
        assert len(content) == size, "a file has the length that it was begun with"


def members(raw: bytes) -> tuple[bytes, dict[str, bytes]]:
    """(the manifest, the files) of a stream. Raises BadBackupError."""
    memory, told = Memory(), []
    stream.written, stream.files.make_folders = memory.written, lambda folder: None
    last = stream.unpack(io.BytesIO(raw), root, told.append)
    assert sum(told) == sum(map(len, memory.files.values()))
    return last, {name: bytes(content) for name, content in memory.files.items()}


cdef int backup_stream(const uint8_t* data, size_t size) noexcept with gil:
    """
    | a stream, or the contents of its files | names, a byte each | how many, a byte |
    Even: a tar is made here, and cut at any place it is none.
    """
    cdef Input left = input_of(data, size)
    count = take_byte(&left)
    raw = made_of(data, left.left)
    if count & 1 == 0:
        raw = tar_of(raw, count >> 1 & 3)
        raw = raw[:len(raw) - (count >> 3) * 100] if count >> 3 else raw
    try:
        last, files = members(raw)
    except BadBackupError as error:
        assert "\n" not in str(error), "a refusal is one line"
        return 0
    for name in files:
        assert manifest.name_trouble(name) is None
    out = io.BytesIO()
    writer = TarWriter(out)
    for name, content in [*files.items(), (manifest.NAME, last)]:
        writer.begin(name, len(content), 0)
        writer.write(content)
        writer.end(len(content))
    writer.close()
    assert members(out.getvalue()) == (last, files)
    return 0


NAMES = (f"commitlog/{0:020d}", "config/topics.json", f"consumequeue/T/0/{0:020d}", "index/20260101")


def tar_of(content: bytes, count: int) -> bytes:
    out = io.BytesIO()
    writer = TarWriter(out)
    for name in (*NAMES[:count], manifest.NAME):
        writer.begin(name, len(content), 0)
        writer.write(content)
        writer.end(len(content))
    writer.close()
    return out.getvalue()


TARGETS = {
    "access_file": <size_t>&access_file, "epochs_file": <size_t>&epochs_file,
    "greeting_words": <size_t>&greeting_words, "checkpoint_file": <size_t>&checkpoint_file,
    "backup_manifest": <size_t>&backup_manifest, "backup_stream": <size_t>&backup_stream,
}
