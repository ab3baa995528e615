"""Where two implementations have to agree; with the interpreter, so slower than the others."""
import os
import tempfile
from pathlib import Path
from random import Random

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from tests.fuzz.targets.input cimport Input, input_of, take_byte, take_part

from mqcore.filter.sql92_compiler import compile_program
from mqcore.filter.sql92_filter import Filter
from mqcore.store.index.query import IndexReader
from mqcore.store.record import tags_code
from mqcore.wire.properties import decode_properties
from mqcore.wire.sql92_tokens import SqlError, SqlLimit
from mqcore.wire.tags import parse_subscription, tag_code
from tests.filter import reference
from tests.filter.generate import Generator
from tests.filter.test_sql92_random import LETTERS, check
from tests.wire.test_fast_header import agreed

SLOTS, ENTRIES = 8, 32


cdef bytes made_of(const uint8_t* data, size_t size):
    return PyBytes_FromStringAndSize(<const char*>data, size)


class Drawn(Random):
    """Draws from bytes; zeros when there are no more."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self.data, self.at = data, 0

    def getrandbits(self, bits: int) -> int:
        count = (bits + 7) // 8
        drawn = self.data[self.at:self.at + count]
        self.at += count
        return int.from_bytes(drawn, "little") >> max(8 * len(drawn) - bits, 0) if drawn else 0

    def random(self) -> float:
        return self.getrandbits(16) / 65536


cdef int header_codecs(const uint8_t* data, size_t size) noexcept with gil:
    """The fast reader of headers and the general one; the last byte chooses the form."""
    cdef Input left = input_of(data, size)
    cdef bint binary = take_byte(&left) & 1
    agreed(made_of(data, left.left), binary)
    return 0


cdef int filters(const uint8_t* data, size_t size) noexcept with gil:
    """A native filter and the reference evaluator: an expression and messages, drawn from the bytes."""
    generator = Generator(Drawn(made_of(data, size)))
    tree = generator.tree()
    try:
        check(tree, generator.text(tree), generator, 3)
    except SqlLimit:                       # more levels than an expression may have
        return 0
    return 0


cdef int expression(const uint8_t* data, size_t size) noexcept with gil:
    """| any text | property bytes | their length, a byte |: compiled or refused, and then evaluated."""
    cdef Input left = input_of(data, size)
    cdef Py_ssize_t length = take_part(&left)
    text = made_of(data, left.left - length).decode("utf-8", "replace")
    try:
        program = compile_program(text)
    except SqlError:
        return 0
    assert Filter(text, program).evaluate(made_of(data + left.left - length, length)) in LETTERS
    return 0


cdef int tag_expression(const uint8_t* data, size_t size) noexcept with gil:
    """| an expression | tags, behind a zero |: each tag's code is the native one."""
    raw, _, tags = made_of(data, size).partition(b"\0")
    text = raw.decode("utf-8", "replace")
    word = tags.decode("utf-8", "replace")
    assert tag_code(word) == tags_code(word.encode())
    try:
        wanted = parse_subscription("T", text)
    except ValueError:
        return 0
    assert wanted.codes == {tags_code(tag.encode()) for tag in wanted.tags}
    assert wanted.matches_code(tag_code(word)) or not wanted.matches(word)
    return 0


folder = tempfile.TemporaryDirectory(prefix="mqcore-fuzz-")
index_path = Path(folder.name) / "20260101000000000"
reader = IndexReader(folder.name, SLOTS, ENTRIES)
index_size = 40 + 4 * SLOTS + 20 * ENTRIES
index_path.write_bytes(bytes(index_size))
index_descriptor = os.open(index_path, os.O_RDWR)


cdef int key_lookup(const uint8_t* data, size_t size) noexcept with gil:
    """An index file of any bytes, asked for a key."""
    raw = made_of(data, size)
    os.pwrite(index_descriptor, raw[:index_size].ljust(index_size, b"\0"), 0)
    found = reader.find("T", "k", 8, 0, 1 << 60)
    assert len(found.positions) <= 8 and len(set(found.positions)) == len(found.positions)
    return 0


TARGETS = {
    "header_codecs": <size_t>&header_codecs, "filters": <size_t>&filters,
    "expression": <size_t>&expression, "tag_expression": <size_t>&tag_expression,
    "key_lookup": <size_t>&key_lookup,
}
