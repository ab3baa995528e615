# Evaluates compiled SQL92 filters over a record's properties (broker.md 8.3). A serving process:
#
#     cdef FilterProgram program                  # its bytes: a copy of one's own, 8-aligned
#     if filter_load(copied, size, &program) == NULL:
#         filter_matches(&program, view.properties, view.properties_length, &work)
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.filter.sql92_program cimport FilterProgram, FilterTruth

# The value of the expression for a message with these property bytes (store.md 2.5). *work grows by
# what it took: steps, and bytes looked at, in units of about a nanosecond.
cdef FilterTruth filter_evaluate(const FilterProgram* program, const uint8_t* properties,
                                 int32_t length, int64_t* work) noexcept nogil
# 1 when the message passes: only true does, not null and not an expression that raised.
cdef int filter_matches(const FilterProgram* program, const uint8_t* properties,
                        int32_t length, int64_t* work) noexcept nogil
