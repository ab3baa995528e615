# The ha-master process's loop; what it does is in master.pxd.
from mqcore.replication.links cimport Master
from mqcore.shm.segment cimport Segment


cdef class MasterLoop:
    cdef Segment segment
    cdef Master* m
    cdef bytes greeting
