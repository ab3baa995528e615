# cython: freethreading_compatible=True
"""The contents of messages to send and of their results, without a dict and a tracked object for each."""
cimport cython
from cpython.object cimport Py_TYPE, PyTypeObject

cdef extern from "Python.h":
    bint PyType_IS_GC(PyTypeObject* kind) noexcept
    void PyObject_GC_UnTrack(object one) noexcept

cdef extern from *:
    """
    static PyObject* mq_new(PyTypeObject* kind, PyObject* arguments) {
        return kind->tp_new(kind, arguments, NULL);
    }
    """
    object new_of "mq_new"(PyTypeObject* kind, object arguments)

from mqcore.wire.properties import KEYS, TAGS, UNIQ_KEY, WAIT

_WAIT = WAIT
_TAGS = TAGS
_KEYS = KEYS
_UNIQ_KEY = UNIQ_KEY
cdef tuple _NOTHING = ()


cdef inline void _leave_unwatched(object one, PyTypeObject* base) noexcept:
    """Unless its class has more than `base` has: that may refer to anything."""
    cdef PyTypeObject* kind = Py_TYPE(one)
    if PyType_IS_GC(kind) and kind.tp_basicsize == base.tp_basicsize and not kind.tp_dictoffset:
        PyObject_GC_UnTrack(one)


@cython.binding(True)
@cython.no_gc
cdef class MessageCore:
    """Topic, body, flag and properties; a subclass checks their values."""

    def __cinit__(self):
        _leave_unwatched(self, <PyTypeObject*>MessageCore)

    def describe(self, wait_store, tags, keys):
        """Of the client itself: the first properties, WAIT and those texts that are not None."""
        self.waits = wait_store
        self.tags_text = tags
        self.keys_text = keys

    cdef object whole(self):
        """The dict of all properties, made when it is first asked for."""
        with cython.critical_section(self):
            if self.kept is None:
                made = {_WAIT: "true" if self.waits else "false"}
                if self.tags_text is not None:
                    made[_TAGS] = self.tags_text
                if self.keys_text is not None:
                    made[_KEYS] = self.keys_text
                if self.unique is not None:
                    made[_UNIQ_KEY] = self.unique
                self.kept = made
            return self.kept

    cdef object text(self, object name):
        """The value of one property, None without; it makes no dict."""
        if self.kept is not None:
            return self.kept.get(name)
        if name == _WAIT:
            return "true" if self.waits else "false"
        if name == _UNIQ_KEY:
            return self.unique
        if name == _TAGS:
            return self.tags_text
        return self.keys_text if name == _KEYS else None

    @property
    def properties(self):
        return self.whole()

    @properties.setter
    def properties(self, value):
        self.kept = value

    def property_text(self, name):
        """Of the client itself: the value of one property, None without."""
        return self.text(name)

    def __reduce__(self):
        return _message, (type(self), self.topic, self.body, self.flag, dict(self.whole())), \
            getattr(self, "__dict__", None)


def _message(kind, topic, body, flag, properties):
    """A message that was copied or pickled."""
    cdef MessageCore made = <MessageCore?>kind.__new__(kind)
    made.topic = topic
    made.body = body
    made.flag = flag
    made.kept = properties
    return made


# -- what pickles say, whatever it is compiled with
_message.__module__ = "mqcore.client.native.messages"


@cython.no_gc
@cython.auto_pickle(False)
@cython.binding(True)
cdef class ResultCore:
    """Where a message went: what SendResult has, whose fields these are."""

    __slots__ = ("status", "message_id", "offset_message_id", "queue", "queue_offset", "region_id",
                 "transaction_id", "is_traced", "recall_handle")

    def __cinit__(self):
        _leave_unwatched(self, <PyTypeObject*>ResultCore)


cdef inline ResultCore _new(object kind):
    """An empty one; `kind` is a class on ResultCore."""
    return <ResultCore>new_of(<PyTypeObject*>kind, _NOTHING)


def results_of(type kind not None, ResultCore whole not None, list keys not None):
    """The results of the messages of a stored batch: a `kind` each, a class on top of ResultCore.

    whole   of the batch: the broker's ids joined by commas, the queue offset of its first message
    keys    the messages' own ids, in order
    """
    cdef list made = []
    cdef list ids = whole.offset_message_id.split(",")
    cdef Py_ssize_t index, count = len(keys)
    cdef bint has_each = len(ids) == count
    cdef ResultCore one
    if not issubclass(kind, ResultCore):
        raise TypeError(f"{kind!r}: expected a class of results")
    for index in range(count):
        one = _new(kind)
        one.status = whole.status
        one.message_id = keys[index]
        one.offset_message_id = ids[index] if has_each else whole.offset_message_id
        one.queue = whole.queue
        one.queue_offset = whole.queue_offset + index
        one.region_id = whole.region_id
        one.transaction_id = ""
        one.is_traced = whole.is_traced
        one.recall_handle = ""
        made.append(one)
    return made
