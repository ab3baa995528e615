"""Checks the bytes of a compiled SQL92 filter, so that evaluating it needs no checks."""
from libc.stdint cimport int16_t, int64_t, uint8_t, uint16_t, uint32_t

from mqcore.layout cimport layout_assert


cdef void _prove_layouts() noexcept nogil:
    layout_assert(sizeof(FilterHead) == 96)
    layout_assert(sizeof(FilterName) == 8)
    layout_assert(sizeof(FilterConstant) == 16)
    layout_assert(sizeof(FilterInstruction) == 8)


cdef inline bint in_text(uint32_t offset, uint32_t length, uint32_t size) noexcept nogil:
    return offset <= size and length <= size - offset


cdef const char* check_names(const FilterProgram* program) noexcept nogil:
    cdef const FilterHead* head = program.head
    cdef const FilterName* name
    cdef int i
    for i in range(NAME_BUCKETS):
        if head.buckets[i] != NAME_NONE and head.buckets[i] >= head.name_count:
            return b"bucket: expected the index of a name"
    for i in range(head.name_count):
        name = &program.names[i]
        if not in_text(name.offset, name.length, head.text_size) or name.length == 0:
            return b"name: expected a place inside the text"
        if name.before != NAME_NONE and name.before >= i:
            return b"name: expected an earlier name before it"
    return NULL


cdef const char* check_constants(const FilterProgram* program) noexcept nogil:
    cdef const FilterConstant* constant
    cdef int i
    for i in range(program.head.constant_count):
        constant = &program.constants[i]
        if constant.type < TYPE_BOOLEAN or constant.type > TYPE_TEXT:
            return b"constant: expected a known type"
        if constant.type == TYPE_BOOLEAN and constant.bits != 0 and constant.bits != 1:
            return b"constant: expected 0 or 1 as a boolean"
        if constant.type == TYPE_TEXT and (
                constant.bits < 0 or constant.bits > TEXT_BYTES_MAX
                or not in_text(<uint32_t>constant.bits, constant.length, program.head.text_size)):
            return b"constant: expected a place inside the text"
    return NULL


cdef bint source_is_sound(const FilterProgram* program, int source, uint16_t index) noexcept nogil:
    if source == SOURCE_CONSTANT:
        return index < program.head.constant_count
    if source == SOURCE_PROPERTY:
        return index < program.head.name_count
    return True


cdef bint texts_are_sound(const FilterProgram* program, int first, int count) noexcept nogil:
    cdef int i
    if first + count > program.head.constant_count:
        return False
    for i in range(first, first + count):
        if program.constants[i].type != TYPE_TEXT:
            return False
    return True


cdef const char* check_operands(const FilterProgram* program,
                                const FilterInstruction* step) noexcept nogil:
    cdef int left = step.flags & FLAG_LEFT
    cdef int right = (step.flags & FLAG_RIGHT) >> FLAG_RIGHT_SHIFT
    if step.operation == OP_PUSH:
        if step.left > TRUTH_NULL:
            return b"push: expected false, true or null"
    if step.operation == OP_CAST or step.operation == OP_IN:
        if step.left >= program.head.name_count:
            return b"property: expected the index of a name"
        if step.operation == OP_IN and not texts_are_sound(program, step.right, step.extra):
            return b"list: expected texts among the constants"
    if step.operation in (OP_IS_NULL, OP_EQUAL, OP_ORDER):
        if not source_is_sound(program, left, step.left):
            return b"left operand: expected an index in its table"
        if step.operation != OP_IS_NULL and not source_is_sound(program, right, step.right):
            return b"right operand: expected an index in its table"
    if step.operation == OP_ORDER and (left == SOURCE_TOP or right == SOURCE_TOP):
        return b"order: expected operands that are no conditions"
    return NULL


cdef int pops(const FilterInstruction* step) noexcept nogil:
    """How many conditions an instruction takes from the stack; -1 for an unknown one."""
    cdef int left = (step.flags & FLAG_LEFT) == SOURCE_TOP
    cdef int right = (step.flags & FLAG_RIGHT) >> FLAG_RIGHT_SHIFT == SOURCE_TOP
    if step.operation in (OP_PUSH, OP_CAST, OP_IN, OP_ORDER):
        return 0
    if step.operation in (OP_NOT, OP_DROP, OP_TO_NULL, OP_JUMP_FALSE, OP_JUMP_TRUE):
        return 1
    if step.operation in (OP_AND, OP_OR):
        return 2
    if step.operation == OP_IS_NULL:
        return left
    if step.operation == OP_EQUAL:
        return left + right
    return -1


cdef const char* check_instructions(const FilterProgram* program) noexcept nogil:
    """Walks the program once; a jump must find the depth that the fall-through has there (FP3)."""
    cdef int16_t[INSTRUCTIONS_MAX + 1] expected
    cdef const FilterInstruction* step
    cdef const char* wrong
    cdef int count = program.head.instruction_count
    cdef int depth = 0
    cdef int i, taken
    for i in range(count + 1):
        expected[i] = -1
    for i in range(count):
        step = &program.instructions[i]
        taken = pops(step)
        if taken < 0:
            return b"instruction: expected a known operation"
        if expected[i] >= 0 and expected[i] != depth:
            return b"jump: expected the same depth on both ways"
        if depth < taken:
            return b"stack: expected a condition on it"
        wrong = check_operands(program, step)
        if wrong != NULL:
            return wrong
        depth -= taken
        if step.operation != OP_DROP:
            depth += 1
        if depth > STACK_MAX:
            return b"stack: expected at most STACK_MAX conditions"
        if step.operation == OP_JUMP_FALSE or step.operation == OP_JUMP_TRUE:
            if step.extra <= i or step.extra > count:
                return b"jump: expected a later instruction"
            if expected[step.extra] >= 0 and expected[step.extra] != depth:
                return b"jump: expected the same depth on all ways"
            expected[step.extra] = <int16_t>depth
    if depth != 1 or (expected[count] >= 0 and expected[count] != 1):
        return b"end: expected one condition on the stack"
    return NULL


cdef const char* filter_load(const uint8_t* program_bytes, int64_t size,
                             FilterProgram* program) noexcept nogil:
    cdef const FilterHead* head = <const FilterHead*>program_bytes
    cdef const char* wrong
    if <size_t>program_bytes & 7:
        return b"program: expected an address that 8 divides"
    if size < <int64_t>sizeof(FilterHead) or size > PROGRAM_SIZE_MAX:
        return b"size: expected a head, and at most PROGRAM_SIZE_MAX bytes"
    if head.magic != PROGRAM_MAGIC or head.version != PROGRAM_VERSION:
        return b"head: expected the magic and version of this build"
    if (head.name_count > NAMES_MAX or head.constant_count > CONSTANTS_MAX
            or head.instruction_count > INSTRUCTIONS_MAX or head.text_size > TEXT_BYTES_MAX):
        return b"head: expected counts inside the limits"
    if head.size != size or size != <int64_t>(
            sizeof(FilterHead) + head.name_count * sizeof(FilterName)
            + head.constant_count * sizeof(FilterConstant)
            + head.instruction_count * sizeof(FilterInstruction) + head.text_size):
        return b"size: expected the sum of the parts"
    program.head = head
    program.names = <const FilterName*>(program_bytes + sizeof(FilterHead))
    program.constants = <const FilterConstant*>(program.names + head.name_count)
    program.instructions = <const FilterInstruction*>(program.constants + head.constant_count)
    program.text = <const uint8_t*>(program.instructions + head.instruction_count)
    wrong = check_names(program)
    if wrong == NULL:
        wrong = check_constants(program)
    if wrong == NULL:
        wrong = check_instructions(program)
    return wrong


def numbers() -> dict[str, int]:
    """The numbers of the program's layout, for the compiler and for tests."""
    return {
        "PROGRAM_MAGIC": PROGRAM_MAGIC, "PROGRAM_VERSION": PROGRAM_VERSION,
        "PROGRAM_SIZE_MAX": PROGRAM_SIZE_MAX, "NAMES_MAX": NAMES_MAX, "NAME_NONE": NAME_NONE,
        "NAME_BUCKETS": NAME_BUCKETS, "CONSTANTS_MAX": CONSTANTS_MAX,
        "INSTRUCTIONS_MAX": INSTRUCTIONS_MAX, "STACK_MAX": STACK_MAX,
        "TEXT_BYTES_MAX": TEXT_BYTES_MAX,
        "TYPE_BOOLEAN": TYPE_BOOLEAN, "TYPE_INT": TYPE_INT, "TYPE_LONG": TYPE_LONG,
        "TYPE_DOUBLE": TYPE_DOUBLE, "TYPE_TEXT": TYPE_TEXT,
        "OP_PUSH": OP_PUSH, "OP_CAST": OP_CAST, "OP_NOT": OP_NOT, "OP_AND": OP_AND,
        "OP_OR": OP_OR, "OP_DROP": OP_DROP, "OP_TO_NULL": OP_TO_NULL,
        "OP_JUMP_FALSE": OP_JUMP_FALSE, "OP_JUMP_TRUE": OP_JUMP_TRUE, "OP_IS_NULL": OP_IS_NULL,
        "OP_EQUAL": OP_EQUAL, "OP_ORDER": OP_ORDER, "OP_IN": OP_IN,
        "FLAG_RIGHT_SHIFT": FLAG_RIGHT_SHIFT, "FLAG_NEGATED": FLAG_NEGATED,
        "FLAG_ORDER_SHIFT": FLAG_ORDER_SHIFT,
        "SOURCE_NULL": SOURCE_NULL, "SOURCE_CONSTANT": SOURCE_CONSTANT,
        "SOURCE_PROPERTY": SOURCE_PROPERTY, "SOURCE_TOP": SOURCE_TOP,
        "ORDER_LESS": ORDER_LESS, "ORDER_LESS_EQUAL": ORDER_LESS_EQUAL,
        "ORDER_GREATER": ORDER_GREATER, "ORDER_GREATER_EQUAL": ORDER_GREATER_EQUAL,
        "TRUTH_FALSE": TRUTH_FALSE, "TRUTH_TRUE": TRUTH_TRUE, "TRUTH_NULL": TRUTH_NULL,
        "TRUTH_RAISED": TRUTH_RAISED,
    }
