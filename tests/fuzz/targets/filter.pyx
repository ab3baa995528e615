"""Compiled SQL92 filters: programs of any bytes over properties of any bytes."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from mqcore.filter.sql92 cimport filter_evaluate, filter_matches
from mqcore.filter.sql92_number cimport parse_real, parse_whole
from mqcore.filter.sql92_program cimport (
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    TRUTH_RAISED,
    TRUTH_TRUE,
    FilterConstant,
    FilterHead,
    FilterInstruction,
    FilterName,
    FilterProgram,
    filter_load,
)

from tests.fuzz.targets.input cimport Input, hold, input_of, take_i32


cdef void make_sound(uint8_t* program, int64_t size) noexcept nogil:
    """The head that says what its parts have: an input of the right size would hardly be found."""
    cdef FilterHead* head = <FilterHead*>program
    cdef int64_t parts
    head.magic = PROGRAM_MAGIC
    head.version = PROGRAM_VERSION
    head.size = <uint32_t>size
    head.name_count &= 15
    head.constant_count &= 31
    head.instruction_count &= 63
    parts = (sizeof(FilterHead) + head.name_count * sizeof(FilterName)
             + head.constant_count * sizeof(FilterConstant)
             + head.instruction_count * sizeof(FilterInstruction))
    head.text_size = <uint32_t>(size - parts if size > parts else 0)


cdef int program(const uint8_t* data, size_t size) noexcept nogil:
    """| program | properties | length of the properties, i32; odd: the head is left as it is |"""
    cdef Input left = input_of(data, size)
    cdef int32_t word = take_i32(&left)
    cdef int32_t length = <int32_t>min(left.left, <int64_t>(word & 0xFFFF) >> 1)
    cdef int64_t program_size = left.left - length
    cdef uint8_t* copied = <uint8_t*>malloc(program_size)
    cdef FilterProgram loaded
    cdef int64_t work = 0, again = 0
    cdef int truth
    memcpy(copied, data, program_size)
    if not word & 1 and program_size >= <int64_t>sizeof(FilterHead):
        make_sound(copied, program_size)
    if filter_load(copied, program_size, &loaded) == NULL:
        truth = filter_evaluate(&loaded, data + program_size, length, &work)
        hold(0 <= truth <= TRUTH_RAISED, "an expression is true, false, null, or raises")
        hold(filter_matches(&loaded, data + program_size, length, &again)
             == (truth == TRUTH_TRUE), "only true passes")
        hold(work == again and work >= length, "work is counted, and the same each time")
    free(copied)
    return 0


cdef bint is_ascii(const uint8_t* data, size_t size) noexcept nogil:
    cdef size_t i
    for i in range(size):
        if data[i] & 0x80:
            return False
    return True


cdef int number(const uint8_t* data, size_t size) noexcept nogil:
    cdef int64_t whole
    cdef double real = 0
    cdef bint is_whole = parse_whole(data, <int32_t>size, &whole)
    if is_whole and is_ascii(data, size):          # digits of other scripts make whole numbers alone
        hold(parse_real(data, <int32_t>size, &real), "a whole number is a real one")
        hold(-9.3e18 < real < 9.3e18, "a whole number has 64 bits")
    else:
        parse_real(data, <int32_t>size, &real)
    return 0


TARGETS = {"program": <size_t>&program, "number": <size_t>&number}
