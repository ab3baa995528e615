# The thread that takes the steps of handshakes: making keys and signing are its business, and no turn
# of the loop is longer for them. It stands back behind everybody else on the machine.
#
#   TL9   A pipe is in one hand at a time, the loop's or the thread's, and with it its socket. A connection
#         that ends meanwhile leaves both to who has them, and is gone at once: nobody waits for the
#         thread, but the end of its process for the step that it is taking.
#   TL10  At most SHAKE_DEPTH pipes are with the thread; the others wait in the loop's line, where whoever
#         ends is gone at once, and turns are given by address.
#
# Pipes come back in the order in which they were asked for, so one ring has them all. Each side rings a
# bell only when the other sleeps; the thread only when few are left to it: a crowd's come back together,
# and the loop can ask for more before it has none.
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport WorkerSlot
from mqcore.net.transport.tls_pipe cimport TlsPipe
from mqcore.threads cimport pthread_t

cdef enum:
    SHAKE_DEPTH = 8                    # a power of two
    SHAKE_LEFT = 2                     # steps that the thread has still to do when it tells of others
    SHAKE_NICE = 10                    # beyond its process's

cdef struct ShakeThread:
    pthread_t thread
    WorkerSlot* slot                   # the loop's
    int bell                           # the thread's
    int32_t asleep                     # the thread
    int32_t stop
    TlsPipe* pipes[SHAKE_DEPTH]        # number n is in place n % SHAKE_DEPTH
    int64_t asked_end                  # the loop has asked for so many, ever
    int64_t back_end                   # so many are back
    int64_t took                       # and so many the loop has taken back; its own

cdef ShakeThread* shake_thread_open(WorkerSlot* slot) noexcept nogil     # NULL: errno
cdef void shake_thread_close(ShakeThread* shaker) noexcept nogil         # what it has is let go of
cdef bint shake_thread_has_room(const ShakeThread* shaker) noexcept nogil
cdef void shake_thread_ask(ShakeThread* shaker, TlsPipe* pipe) noexcept nogil  # there is room
cdef void shake_thread_wake(ShakeThread* shaker) noexcept nogil          # once all are asked for
cdef bint shake_thread_is_back(const ShakeThread* shaker) noexcept nogil # whether one is
# The next one that is back, whose connection is still there; NULL: none.
cdef TlsPipe* shake_thread_take(ShakeThread* shaker) noexcept nogil
# Its connection ends, and it is with the thread.
cdef void shake_thread_leave(TlsPipe* pipe) noexcept nogil
