# The ha-slave process's loop; what it does is in slave.pxd.
from mqcore.replication.slave cimport Slave
from mqcore.shm.segment cimport Segment


cdef class SlaveLoop:
    cdef Segment segment
    cdef Slave* s
    cdef bytes overlap
