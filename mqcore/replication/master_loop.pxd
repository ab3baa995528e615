# The ha-master process's loop; what it does is in master.pxd.
from libc.stdint cimport int64_t

from mqcore.net.transport.tls_context cimport TlsContext
from mqcore.replication.links cimport Master
from mqcore.shm.segment cimport Segment


cdef class MasterLoop:
    cdef Segment segment
    cdef Master* m
    cdef bytes greeting
    cdef TlsContext tls               # of the next link
    cdef readonly int64_t gathered    # how often it has waited so that slaves get more at a time
