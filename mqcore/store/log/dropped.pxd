# The requests that a dead writer left in the rings.
from mqcore.store.log.appender cimport Appender

cdef void requests_drop(Appender* a) noexcept nogil
