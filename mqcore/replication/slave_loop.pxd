# The ha-slave process's loop; what it does is in slave.pxd.
from libc.stdint cimport int64_t

from mqcore.replication.slave cimport Slave
from mqcore.shm.segment cimport Segment


cdef class SlaveLoop:
    cdef Segment segment
    cdef Slave* s
    cdef bytes overlap
    cdef int64_t place_seen           # of who leads and where the log is, when `run` ended last
