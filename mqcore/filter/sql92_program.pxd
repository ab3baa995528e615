# The layout of compiled SQL92 filters, and the check that a program passes before it is run.
#
# A program is made by mqcore/filter/sql92_compiler.py and holds no pointers, so its bytes can be
# copied to any 8-aligned place:
#
#   | head (96) | names (8 each) | constants (16 each) | instructions (8 each) | text |
#
#   FP1  filter_load checks everything below before it says yes: sizes, indices, jumps, the depth
#        of the stack. filter_evaluate checks nothing and relies on it.
#   FP2  The bytes must not change after filter_load: copy a program out of shared memory first.
#   FP3  Jumps lead forward only, so an evaluation takes at most INSTRUCTIONS_MAX steps.
#   FP4  Evaluation allocates nothing, and only reads.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef enum:
    PROGRAM_MAGIC = 0x4C51534D             # "MSQL"
    PROGRAM_VERSION = 1
    PROGRAM_SIZE_MAX = 131_072
    NAMES_MAX = 64                         # different properties
    NAME_NONE = 255
    NAME_BUCKETS = 64                      # by length modulo this
    CONSTANTS_MAX = 4_096
    INSTRUCTIONS_MAX = 2_048
    STACK_MAX = 256
    TEXT_BYTES_MAX = 32_768

cdef struct FilterHead:
    uint32_t magic
    uint16_t version
    uint16_t name_count
    uint32_t size                          # of the whole program
    uint16_t constant_count
    uint16_t instruction_count
    uint32_t text_size
    uint32_t reserved                      # 0
    int64_t reserved_too                   # 0
    uint8_t[NAME_BUCKETS] buckets          # the last name of each bucket, or NAME_NONE

cdef struct FilterName:
    uint32_t offset                        # into the text
    uint16_t length
    uint8_t before                         # an earlier name of the same bucket, or NAME_NONE
    uint8_t reserved                       # 0

cdef enum FilterType:
    TYPE_NULL = 0
    TYPE_BOOLEAN = 1
    TYPE_INT = 2                           # 32 bits: a property beside it must fit them
    TYPE_LONG = 3
    TYPE_DOUBLE = 4
    TYPE_TEXT = 5

cdef struct FilterConstant:
    int32_t type
    uint32_t length                        # of a text
    int64_t bits                           # a whole number, a double's bits, a place in the text

cdef struct FilterInstruction:
    uint8_t operation
    uint8_t flags
    uint16_t left
    uint16_t right
    uint16_t extra

cdef enum FilterOperation:                 # "top" is the top of the stack of conditions
    OP_PUSH = 1                            # left: the Truth to push
    OP_CAST = 2                            # pushes null if property `left` is missing, else false
    OP_NOT = 3                             # on top
    OP_AND = 4                             # of the two on top
    OP_OR = 5
    OP_DROP = 6                            # the top
    OP_TO_NULL = 7                         # whatever the top is
    OP_JUMP_FALSE = 8                      # to instruction `extra` if the top is false; it stays
    OP_JUMP_TRUE = 9
    OP_IS_NULL = 10                        # of the left operand
    OP_EQUAL = 11                          # of two operands
    OP_ORDER = 12
    OP_IN = 13                             # property `left` among `extra` texts from `right` on

cdef enum FilterFlag:
    FLAG_LEFT = 0x03                       # FilterSource of `left`
    FLAG_RIGHT = 0x0C                      # FilterSource of `right`, two bits up
    FLAG_RIGHT_SHIFT = 2
    FLAG_NEGATED = 0x10
    FLAG_ORDER = 0x60                      # FilterOrder, five bits up
    FLAG_ORDER_SHIFT = 5

cdef enum FilterSource:
    SOURCE_NULL = 0
    SOURCE_CONSTANT = 1
    SOURCE_PROPERTY = 2
    SOURCE_TOP = 3                         # popped; of two, the right one first

cdef enum FilterOrder:
    ORDER_LESS = 0
    ORDER_LESS_EQUAL = 1
    ORDER_GREATER = 2
    ORDER_GREATER_EQUAL = 3

cdef enum FilterTruth:
    TRUTH_FALSE = 0
    TRUTH_TRUE = 1
    TRUTH_NULL = 2
    TRUTH_RAISED = 3                       # a text that is no number, types that do not compare

cdef struct FilterProgram:                 # a checked program; points into its bytes
    const FilterHead* head
    const FilterName* names
    const FilterConstant* constants
    const FilterInstruction* instructions
    const uint8_t* text

# NULL, and *program filled, when the bytes are a sound program; else what is wrong with them.
cdef const char* filter_load(const uint8_t* program_bytes, int64_t size,
                             FilterProgram* program) noexcept nogil
