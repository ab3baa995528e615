# What has to go of the consume queues at a start; recovery_queues.pxd has the rules.
from mqcore.store.recovery_queues cimport QueueRecovery


cdef class QueueCutting(QueueRecovery):
    pass
