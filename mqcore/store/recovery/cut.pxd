# What has to go of the consume queues at a start; queues.pxd has the rules.
from mqcore.store.recovery.queues cimport QueueRecovery


cdef class QueueCutting(QueueRecovery):
    pass
