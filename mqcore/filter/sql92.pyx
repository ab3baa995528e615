"""Evaluates compiled SQL92 filters over property bytes, without the GIL."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from mqcore.filter.sql92_number cimport parse_real, parse_whole
from mqcore.filter.sql92_program cimport (
    FLAG_LEFT,
    FLAG_NEGATED,
    FLAG_ORDER,
    FLAG_ORDER_SHIFT,
    FLAG_RIGHT,
    FLAG_RIGHT_SHIFT,
    FilterConstant,
    FilterInstruction,
    FilterName,
    FilterProgram,
    FilterTruth,
    NAMES_MAX,
    NAME_BUCKETS,
    NAME_NONE,
    OP_AND,
    OP_CAST,
    OP_EQUAL,
    OP_IN,
    OP_IS_NULL,
    OP_JUMP_FALSE,
    OP_JUMP_TRUE,
    OP_NOT,
    OP_OR,
    OP_ORDER,
    OP_PUSH,
    OP_TO_NULL,
    ORDER_GREATER,
    ORDER_LESS,
    ORDER_LESS_EQUAL,
    SOURCE_CONSTANT,
    SOURCE_PROPERTY,
    SOURCE_TOP,
    STACK_MAX,
    TRUTH_FALSE,
    TRUTH_NULL,
    TRUTH_RAISED,
    TRUTH_TRUE,
    TYPE_BOOLEAN,
    TYPE_DOUBLE,
    TYPE_LONG,
    TYPE_NULL,
    TYPE_TEXT,
    filter_load,
)
from mqcore.store.record cimport PropertyItem, property_next
from mqcore.text cimport SMALL_LETTER, literal_length

cdef enum:
    NOT_READ = 0                           # a property's text as a number: not tried yet
    IS_NUMBER = 1
    NO_NUMBER = 2
    STEP_WORK = 6                          # of one instruction
    ITEM_WORK = 2                          # of one text of a list
    TEXT_WORK_SHIFT = 4                    # of comparing a text: one for sixteen bytes
    NUMBER_WORK_SHIFT = 2                  # of reading a constant text as a number: four for a byte


cdef struct Property:                      # one name of the program, in the message at hand
    const uint8_t* text                    # NULL: the message has none
    int32_t length
    uint8_t whole_state
    uint8_t real_state
    int64_t whole
    double real

cdef struct Value:
    int type                               # FilterType
    int64_t whole
    double real
    const uint8_t* text
    int32_t length
    Property* property                     # whose text it is, to read it as a number only once


cdef void find_properties(const FilterProgram* program, const uint8_t* at, int32_t length,
                          Property* found) noexcept nogil:
    """One walk over the message's properties; a later duplicate overwrites an earlier one."""
    cdef const uint8_t* end = at + length
    cdef const FilterName* name
    cdef PropertyItem item
    cdef uint8_t index
    cdef int i
    for i in range(program.head.name_count):
        found[i].text = NULL
    while property_next(&at, end, &item):
        index = program.head.buckets[item.key_length & (NAME_BUCKETS - 1)]
        while index != NAME_NONE:
            name = &program.names[index]
            if (name.length == item.key_length
                    and memcmp(program.text + name.offset, item.key, name.length) == 0):
                found[index].text = item.value
                found[index].length = item.value_length
                found[index].whole_state = NOT_READ
                found[index].real_state = NOT_READ
                break
            index = name.before


cdef inline void read_value(const FilterProgram* program, Property* properties, int source,
                            uint16_t index, Value* value) noexcept nogil:
    """The value of an operand that is not on the stack."""
    cdef const FilterConstant* constant
    value.type = TYPE_NULL
    value.property = NULL
    if source == SOURCE_PROPERTY:
        if properties[index].text != NULL:
            value.type = TYPE_TEXT
            value.text = properties[index].text
            value.length = properties[index].length
            value.property = &properties[index]
    elif source == SOURCE_CONSTANT:
        constant = &program.constants[index]
        value.type = constant.type
        value.whole = constant.bits
        if constant.type == TYPE_DOUBLE:
            memcpy(&value.real, &constant.bits, sizeof(double))
        elif constant.type == TYPE_TEXT:
            value.text = program.text + constant.bits
            value.length = <int32_t>constant.length


cdef inline void truth_value(uint8_t truth, Value* value) noexcept nogil:
    value.type = TYPE_NULL if truth == TRUTH_NULL else TYPE_BOOLEAN
    value.whole = truth
    value.property = NULL


cdef bint text_as_whole(const Value* text, int64_t* number) noexcept nogil:
    cdef Property* property = text.property
    if property == NULL:
        return parse_whole(text.text, text.length, number)
    if property.whole_state == NOT_READ:
        property.whole_state = (
            IS_NUMBER if parse_whole(text.text, text.length, &property.whole) else NO_NUMBER)
    number[0] = property.whole
    return property.whole_state == IS_NUMBER


cdef bint text_as_real(const Value* text, double* number) noexcept nogil:
    cdef Property* property = text.property
    if property == NULL:
        return parse_real(text.text, text.length, number)
    if property.real_state == NOT_READ:
        property.real_state = (
            IS_NUMBER if parse_real(text.text, text.length, &property.real) else NO_NUMBER)
    number[0] = property.real
    return property.real_state == IS_NUMBER


cdef bint as_number(const Value* value, int type, Value* number) noexcept nogil:
    """`value`, a text read as a number of `type`; False when the text is none, or too large."""
    cdef int64_t whole = 0
    cdef double real = 0
    if value.type != TYPE_TEXT:
        number[0] = value[0]
        return True
    number.type = type
    if type == TYPE_DOUBLE:
        if not text_as_real(value, &real):
            return False
        number.real = real
        return True
    if not text_as_whole(value, &whole):
        return False
    number.whole = whole
    return type == TYPE_LONG or <int64_t>(<int32_t>whole) == whole


cdef inline int compare_reals(double left, double right) noexcept nogil:
    """-1, 0 or 1: a total order, with -0.0 below 0.0 and NaN above all and equal to itself."""
    cdef int64_t left_bits, right_bits
    if left < right:
        return -1
    if left > right:
        return 1
    if left != left or right != right:
        return (left != left) - (right != right)
    memcpy(&left_bits, &left, sizeof(double))
    memcpy(&right_bits, &right, sizeof(double))
    return (left_bits > right_bits) - (left_bits < right_bits)


cdef bint compare_numbers(const Value* left, const Value* right, int* result) noexcept nogil:
    """Compares numbers and texts, a text as the other side's type. False: not a number."""
    cdef Value a, b
    cdef int left_type = left.type
    cdef int right_type = right.type
    if left_type == TYPE_TEXT:
        left_type = TYPE_DOUBLE if right_type == TYPE_TEXT else right_type
    if right_type == TYPE_TEXT:
        right_type = left_type
    if not as_number(left, left_type, &a) or not as_number(right, right_type, &b):
        return False
    if a.type == TYPE_DOUBLE or b.type == TYPE_DOUBLE:
        result[0] = compare_reals(a.real if a.type == TYPE_DOUBLE else <double>a.whole,
                                  b.real if b.type == TYPE_DOUBLE else <double>b.whole)
    else:
        result[0] = (a.whole > b.whole) - (a.whole < b.whole)
    return True


cdef bint says_true(const Value* text) noexcept nogil:
    return (text.length == literal_length("true") and text.text[0] | SMALL_LETTER == c't'
            and text.text[1] | SMALL_LETTER == c'r' and text.text[2] | SMALL_LETTER == c'u'
            and text.text[3] | SMALL_LETTER == c'e')


cdef FilterTruth equal(const Value* left, const Value* right) noexcept nogil:
    """broker.md 8.3: null on the left is null, on the right only false."""
    cdef int result = 0
    if left.type == TYPE_NULL:
        return TRUTH_TRUE if right.type == TYPE_NULL else TRUTH_NULL
    if right.type == TYPE_NULL:
        return TRUTH_FALSE
    if left.type == TYPE_TEXT and right.type == TYPE_TEXT:
        return <FilterTruth>(left.length == right.length
                             and memcmp(left.text, right.text, left.length) == 0)
    if left.type == TYPE_BOOLEAN:
        if right.type == TYPE_TEXT:
            return TRUTH_RAISED            # only a text on the left is read as a boolean
        return <FilterTruth>(right.type == TYPE_BOOLEAN and left.whole == right.whole)
    if right.type == TYPE_BOOLEAN:
        return <FilterTruth>(left.type == TYPE_TEXT and says_true(left) == right.whole)
    if not compare_numbers(left, right, &result):
        return TRUTH_RAISED
    return <FilterTruth>(result == 0)


cdef FilterTruth ordered(int order, const Value* left, const Value* right) noexcept nogil:
    cdef int result = 0
    if left.type == TYPE_NULL or right.type == TYPE_NULL:
        return TRUTH_NULL
    if left.type == TYPE_BOOLEAN or right.type == TYPE_BOOLEAN:
        return TRUTH_RAISED
    if not compare_numbers(left, right, &result):
        return TRUTH_RAISED
    if order == ORDER_LESS:
        return <FilterTruth>(result < 0)
    if order == ORDER_LESS_EQUAL:
        return <FilterTruth>(result <= 0)
    if order == ORDER_GREATER:
        return <FilterTruth>(result > 0)
    return <FilterTruth>(result >= 0)


cdef inline int64_t work_of(const Value* left, const Value* right, bint equality) noexcept nogil:
    """What comparing them takes, beside the step. Texts of properties are counted once, as bytes."""
    cdef int64_t work = 0
    if equality and left.type == TYPE_TEXT and right.type == TYPE_TEXT:
        return left.length >> TEXT_WORK_SHIFT if left.length == right.length else 0
    if left.type == TYPE_TEXT and left.property == NULL:
        work += <int64_t>left.length << NUMBER_WORK_SHIFT
    if right.type == TYPE_TEXT and right.property == NULL:
        work += <int64_t>right.length << NUMBER_WORK_SHIFT
    return work


cdef FilterTruth in_list(const FilterProgram* program, const Property* property,
                         const FilterInstruction* step, int64_t* work) noexcept nogil:
    cdef const FilterConstant* text = program.constants + step.right
    cdef int i
    if property.text == NULL:
        return TRUTH_NULL
    for i in range(step.extra):
        work[0] += ITEM_WORK
        if <int32_t>text[i].length == property.length:
            work[0] += property.length >> TEXT_WORK_SHIFT
        if (<int32_t>text[i].length == property.length
                and memcmp(program.text + text[i].bits, property.text, property.length) == 0):
            return TRUTH_TRUE
    return TRUTH_FALSE


cdef inline uint8_t negated(uint8_t truth) noexcept nogil:
    return truth ^ 1 if truth <= TRUTH_TRUE else truth


cdef inline uint8_t both(uint8_t left, uint8_t right) noexcept nogil:
    if left == TRUTH_FALSE or right == TRUTH_FALSE:
        return TRUTH_FALSE
    return TRUTH_NULL if left == TRUTH_NULL or right == TRUTH_NULL else TRUTH_TRUE


cdef inline uint8_t either(uint8_t left, uint8_t right) noexcept nogil:
    return negated(both(negated(left), negated(right)))


cdef FilterTruth compare(const FilterProgram* program, Property* properties,
                         const FilterInstruction* step, uint8_t* stack,
                         int* depth, int64_t* work) noexcept nogil:
    """OP_IS_NULL, OP_EQUAL, OP_ORDER: pops what they take, returns what they push."""
    cdef Value left, right
    cdef int left_source = step.flags & FLAG_LEFT
    cdef int right_source = (step.flags & FLAG_RIGHT) >> FLAG_RIGHT_SHIFT
    cdef uint8_t truth
    if step.operation != OP_IS_NULL:
        if right_source == SOURCE_TOP:
            depth[0] -= 1
            truth_value(stack[depth[0]], &right)
        else:
            read_value(program, properties, right_source, step.right, &right)
    if left_source == SOURCE_TOP:
        depth[0] -= 1
        truth_value(stack[depth[0]], &left)
    else:
        read_value(program, properties, left_source, step.left, &left)
    if step.operation != OP_IS_NULL:
        work[0] += work_of(&left, &right, step.operation == OP_EQUAL)
    if step.operation == OP_IS_NULL:
        truth = left.type == TYPE_NULL
    elif step.operation == OP_EQUAL:
        truth = equal(&left, &right)
    else:
        truth = ordered((step.flags & FLAG_ORDER) >> FLAG_ORDER_SHIFT, &left, &right)
    return <FilterTruth>(negated(truth) if step.flags & FLAG_NEGATED else truth)


cdef FilterTruth filter_evaluate(const FilterProgram* program, const uint8_t* properties,
                                 int32_t length, int64_t* work) noexcept nogil:
    cdef Property[NAMES_MAX] found
    cdef uint8_t[STACK_MAX] stack
    cdef const FilterInstruction* step
    cdef int count = program.head.instruction_count
    cdef int depth = 0
    cdef int i = 0
    cdef uint8_t truth
    find_properties(program, properties, length, found)
    work[0] += length
    while i < count:
        step = &program.instructions[i]
        i += 1
        work[0] += STEP_WORK
        if step.operation == OP_JUMP_FALSE or step.operation == OP_JUMP_TRUE:
            if stack[depth - 1] == (step.operation == OP_JUMP_TRUE):
                i = step.extra
        elif step.operation >= OP_IS_NULL:
            if step.operation == OP_IN:
                truth = in_list(program, &found[step.left], step, work)
                truth = negated(truth) if step.flags & FLAG_NEGATED else truth
            else:
                truth = compare(program, found, step, stack, &depth, work)
            if truth == TRUTH_RAISED:
                return TRUTH_RAISED
            stack[depth] = truth
            depth += 1
        elif step.operation == OP_AND or step.operation == OP_OR:
            depth -= 1
            stack[depth - 1] = (both(stack[depth - 1], stack[depth]) if step.operation == OP_AND
                                else either(stack[depth - 1], stack[depth]))
        elif step.operation == OP_PUSH or step.operation == OP_CAST:
            truth = <uint8_t>step.left
            if step.operation == OP_CAST:
                truth = TRUTH_NULL if found[step.left].text == NULL else TRUTH_FALSE
            stack[depth] = truth
            depth += 1
        elif step.operation == OP_NOT:
            stack[depth - 1] = negated(stack[depth - 1])
        elif step.operation == OP_TO_NULL:
            stack[depth - 1] = TRUTH_NULL
        else:                              # OP_DROP
            depth -= 1
    return <FilterTruth>stack[0]


cdef int filter_matches(const FilterProgram* program, const uint8_t* properties,
                        int32_t length, int64_t* work) noexcept nogil:
    return filter_evaluate(program, properties, length, work) == TRUTH_TRUE


# -- the Python shell ------------------------------------------------------------------------------

cdef class Program:
    """A compiled filter in memory of its own; for tests, tools and the coordinator."""

    cdef FilterProgram program
    cdef uint8_t* memory
    cdef readonly int64_t work             # that its evaluations took

    def __cinit__(self, const uint8_t[::1] program_bytes):
        """Copies and checks a program. Raises ValueError saying what is wrong with it."""
        cdef Py_ssize_t size = program_bytes.shape[0]
        cdef const char* wrong
        self.memory = <uint8_t*>malloc(max(1, size))
        if self.memory == NULL:
            raise MemoryError("SQL92 program: expected memory for its bytes")
        if size:
            memcpy(self.memory, &program_bytes[0], size)
        wrong = filter_load(self.memory, size, &self.program)
        if wrong != NULL:
            raise ValueError(f"SQL92 program: {wrong.decode()}")

    def __dealloc__(self):
        free(self.memory)

    def evaluate(self, const uint8_t[::1] properties) -> int:
        """The Truth for a message with these property bytes."""
        cdef const uint8_t* start = &properties[0] if properties.shape[0] else NULL
        return filter_evaluate(&self.program, start, <int32_t>properties.shape[0], &self.work)

    def count_matches(self, const uint8_t[::1] properties, int64_t rounds) -> int:
        """Evaluates `rounds` times in one call and returns how often it matched; for benchmarks."""
        cdef const uint8_t* start = &properties[0] if properties.shape[0] else NULL
        cdef int32_t length = <int32_t>properties.shape[0]
        cdef int64_t i, matched = 0
        cdef int64_t work = 0
        with nogil:
            for i in range(rounds):
                matched += filter_matches(&self.program, start, length, &work)
        return matched
