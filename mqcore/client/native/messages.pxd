# The contents of a message and of the result of its send, below the classes that applications see.
#
# Neither is watched by the interpreter's collector of garbage: a program that makes many messages
# does not make the collector go through them again and again. They hold texts, bytes and numbers, which
# refer to nothing, so none is part of a circle. An application's subclass, with
# attributes of its own, is watched as any other.
from libc.stdint cimport int64_t


cdef class MessageCore:
    # Until the dict of its properties is asked for, `kept` is None and they are WAIT, TAGS,
    # KEYS and UNIQ_KEY, in this order, those that are not None. From then on the dict has them all.
    cdef public object topic
    cdef public object body
    cdef public object flag
    cdef object kept
    cdef object tags_text
    cdef object keys_text
    cdef object unique
    cdef bint waits

    cdef object whole(self)
    cdef object text(self, object name)


cdef class ResultCore:
    cdef public object status
    cdef public object message_id
    cdef public object offset_message_id
    cdef public object queue
    cdef public int64_t queue_offset
    cdef public object region_id
    cdef public object transaction_id
    cdef public bint is_traced
    cdef public object recall_handle


# Names of properties, as texts.
cdef object _WAIT
cdef object _TAGS
cdef object _KEYS
cdef object _UNIQ_KEY
