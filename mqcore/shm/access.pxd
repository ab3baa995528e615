# Access rules in shared memory: who may do what, for those who check requests.
#
#   AR1  Only the coordinator writes the table, whole, under `access_sequence` of the head; before it
#       has written one, no process decides (a run without access control has no room for it).
#   AR2  Each process that checks has a copy of its own, and takes a new one before it looks at requests
#       behind the change: a client that was answered that a rule is changed finds it changed.
#
# The table holds no secret keys, but what is as good as one: the states that HMAC makes of them.
#
#    AccessTable | AccessAccount[] | account index | AccessPermission[] | AccessAddress[] | texts
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from mqcore.layout cimport ADDRESS_V6_SIZE
from mqcore.shm.segment cimport Shm

cdef enum:
    KEY_STATE_WORDS = 5                  # of SHA-1

cpdef enum:
    ACCESS_NAME_BYTES_MAX = 512          # longer names have no permission of their own

cdef struct AccessTable:
    int64_t size                         # of all of it, in bytes
    int32_t account_count
    int32_t account_mask                 # places of the account index, less one
    int32_t permission_mask              # of the permissions, which are their own index
    int32_t address_count                # of the global white list, which begins the addresses
    int32_t stock_permissions            # pass what a stock broker lets pass
    uint8_t pad[4]
    int64_t accounts_start               # from the beginning of the table
    int64_t account_index_start          # int32[]: number of an account, -1: free
    int64_t permissions_start
    int64_t addresses_start
    int64_t texts_start

cdef struct AccessAccount:
    uint32_t inner[KEY_STATE_WORDS]      # of its secret key (mqcore/hmac_sha1.pxd)
    uint32_t outer[KEY_STATE_WORDS]
    int32_t key_start                    # its access key, in the texts
    int32_t key_length
    int32_t address_first                # of its own white list
    int32_t address_count
    uint8_t admin
    uint8_t has_permissions              # it has some by name
    uint8_t topic_default                # AccessPermissionBits
    uint8_t group_default
    uint8_t pad[4]
    uint64_t hash                        # of its access key, not 0: what it is called in short

cdef struct AccessPermission:
    uint64_t hash                        # of account and name
    int32_t account                      # -1: free
    int32_t name_start                   # a topic's, or %RETRY% and a group's, in the texts
    int32_t name_length
    uint8_t bits                         # AccessPermissionBits
    uint8_t pad[3]

cdef struct AccessAddress:
    uint8_t family                       # 4 or 6; 0: every address
    uint8_t prefix_length                # bytes that have to be equal
    uint8_t width                        # bytes of the number behind them, 0: it does not count
    uint8_t pad
    uint16_t low                         # that number is one of these
    uint16_t high
    uint8_t prefix[ADDRESS_V6_SIZE]

cpdef enum AccessPermissionBits:
    ACCESS_DENY = 1
    ACCESS_PUB = 4
    ACCESS_SUB = 8

cdef struct Access:                    # a process's copy
    Shm* shm
    AccessTable* table                 # NULL: none yet
    int32_t sequence                   # that was copied; of the newest, when they agree

cdef inline bint access_is_on(const Access* a) noexcept nogil:
    return a.shm.head.access.capacity > 0

cdef void access_open(Access* a, Shm* shm) noexcept nogil
cdef void access_close(Access* a) noexcept nogil
# Takes the newest rules; False: there are none, or they are just being written, or no memory.
cdef bint access_look(Access* a) noexcept nogil

# Below: of a copied table. NULL: no such account.
cdef const AccessAccount* access_account(const AccessTable* table, const uint8_t* key,
                                         int32_t length) noexcept nogil
# The permission for a name that begins with `prefix` (NULL: with nothing); 0: it has none of its own.
cdef int access_permission(const AccessTable* table, const AccessAccount* account,
                           const uint8_t* prefix, int32_t prefix_length, const uint8_t* name,
                           int32_t length) noexcept nogil
# Whether an address is in a white list: `count` of the table's from `first` on.
cdef bint access_is_white(const AccessTable* table, int32_t first, int32_t count,
                          const uint8_t* address, bint is_v6) noexcept nogil
