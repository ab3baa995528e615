# What this broker is, for records and answers.
from libc.stdint cimport int32_t, uint8_t

from mqcore.layout cimport HOST_V6_SIZE

cdef enum:
    CLUSTER_PROPERTY_MAX = 300
    REGION_MAX = 256
    ILLEGAL_REMARK_MAX = 256
    BROKER_NAME_MAX = 255

cdef struct Identity:
    uint8_t[HOST_V6_SIZE] store_host   # as a record has it
    int32_t store_host_size
    uint8_t[CLUSTER_PROPERTY_MAX] cluster_property     # CLUSTER 0x01 name
    int32_t cluster_property_length
    uint8_t[REGION_MAX] region
    int32_t region_length
    uint8_t[BROKER_NAME_MAX] broker_name
    int32_t broker_name_length         # 0: too long for recall handles
    bint trace_on
    int32_t body_max
    char[ILLEGAL_REMARK_MAX] illegal   # the remark of MESSAGE_ILLEGAL, with the limits
