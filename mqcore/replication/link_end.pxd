# How a link to a followed log ends, and what is said of links.
from libc.stdint cimport int64_t

from mqcore.replication.links cimport Link, Master

cpdef enum MasterNote:
    NOTE_SLAVE = 1                    # one has reported: from here on it is sent the log
    NOTE_LEFT = 2                     # it has closed, or its network did
    NOTE_NONSENSE = 3                 # its report is no position; the report
    NOTE_BEYOND = 4                   # its report is one that we have not, or it was not sent; the report
    NOTE_BEFORE = 5                   # it asks for what we have no longer; the report
    NOTE_DELETED = 6                  # what is next for it is deleted; the position
    NOTE_SILENT = 7                   # it has said nothing for so many ms
    NOTE_NO_PLACE = 8                 # too many links
    NOTE_UNREADABLE = 9               # the log cannot be read; errno
    NOTE_DAMAGED = 10                 # what is next for it is not what was written; where that record begins
    NOTE_STRANGER = 11                # master HM15
    NOTE_NO_TLS = 12                  # it begins TLS, which is not served
    NOTE_IN_THE_CLEAR = 13            # it does not, and has to
    NOTE_TLS_FAILED = 14              # its handshake, or its records; what tls_context.trouble reads
    NOTE_TLS_SLOW = 15                # its handshake took so many ms

cdef void master_note(Master* m, const Link* l, int kind, int64_t value) noexcept nogil
# kind: why, as a MasterNote.
cdef void link_close(Master* m, Link* l, int kind, int64_t value) noexcept nogil
# Its socket, and its TLS.
cdef void link_drop_wire(Link* l, bint says) noexcept nogil

cdef inline int place_of(const Master* m, const Link* l) noexcept nogil:
    return <int>(l - m.links)
