"""Makes, shows and looks at the table of access rules."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from mqcore.atomics cimport acquire_fence, load_i32_acquire, release_fence, store_i32_release
from mqcore.hmac_sha1 cimport (
    HMAC_SLACK,
    SHA1_SIZE,
    Hmac,
    Sha1State,
    hmac_add,
    hmac_begin,
    hmac_end,
    hmac_key,
    hmac_whole,
    sha1_init,
    sha1_instructions,
)
from mqcore.layout cimport (
    ADDRESS_V4_SIZE,
    ADDRESS_V6_SIZE,
    layout_assert,
)
from mqcore.shm.reserve cimport shm_reserve
from mqcore.shm.segment cimport Segment

sha1_init()

cdef enum:
    TRIES = 100

cdef void _prove_layouts() noexcept nogil:
    layout_assert(sizeof(AccessTable) == 72)
    layout_assert(sizeof(AccessAccount) == 72)
    layout_assert(sizeof(AccessPermission) == 24)
    layout_assert(sizeof(AccessAddress) == 24)


cdef uint64_t HASH_START = 0xCBF29CE484222325      # FNV-1a
cdef uint64_t HASH_PRIME = 0x100000001B3


cdef inline uint64_t hash_more(uint64_t hash, const uint8_t* text, int32_t length) noexcept nogil:
    cdef int32_t i
    for i in range(length):
        hash = (hash ^ text[i]) * HASH_PRIME
    return hash


cdef inline int32_t place_of(uint64_t hash, int32_t mask) noexcept nogil:
    return <int32_t>((hash ^ hash >> 29) & <uint64_t>mask)


cdef inline uint8_t* part(const AccessTable* table, int64_t start) noexcept nogil:
    return <uint8_t*>table + start


cdef inline const AccessAccount* accounts_of(const AccessTable* table) noexcept nogil:
    return <const AccessAccount*>part(table, table.accounts_start)


cdef void access_open(Access* a, Shm* shm) noexcept nogil:
    a.shm = shm
    a.table = NULL
    a.sequence = 0


cdef void access_close(Access* a) noexcept nogil:
    free(a.table)
    a.table = NULL


cdef bint access_look(Access* a) noexcept nogil:
    cdef const AccessTable* shown = <const AccessTable*>(a.shm.base + a.shm.head.access.start)
    cdef AccessTable* copy
    cdef int64_t size
    cdef int tries
    cdef int32_t sequence = load_i32_acquire(&a.shm.head.access_sequence)
    if sequence == a.sequence:
        return a.table != NULL
    for tries in range(TRIES):
        sequence = load_i32_acquire(&a.shm.head.access_sequence)
        if sequence & 1 or sequence == 0:
            return False
        size = shown.size
        if size < <int64_t>sizeof(AccessTable) or size > a.shm.head.access.capacity:
            continue
        copy = <AccessTable*>malloc(size)
        if copy == NULL:
            return False
        memcpy(copy, shown, size)
        acquire_fence()
        if load_i32_acquire(&a.shm.head.access_sequence) == sequence:
            free(a.table)
            a.table = copy
            a.sequence = sequence
            return True
        free(copy)
    return False


cdef const AccessAccount* access_account(const AccessTable* table, const uint8_t* key,
                                         int32_t length) noexcept nogil:
    cdef const int32_t* index = <const int32_t*>part(table, table.account_index_start)
    cdef const AccessAccount* account
    cdef int32_t at = place_of(hash_more(HASH_START, key, length), table.account_mask)
    while index[at] >= 0:
        account = accounts_of(table) + index[at]
        if account.key_length == length and memcmp(
                part(table, table.texts_start + account.key_start), key, length) == 0:
            return account
        at = (at + 1) & table.account_mask
    return NULL


cdef uint64_t name_hash_of(int32_t account, const uint8_t* prefix, int32_t prefix_length,
                           const uint8_t* name, int32_t length) noexcept nogil:
    cdef uint64_t hash = (HASH_START ^ <uint64_t>account) * HASH_PRIME
    return hash_more(hash_more(hash, prefix, prefix_length), name, length)


cdef int access_permission(const AccessTable* table, const AccessAccount* account,
                           const uint8_t* prefix, int32_t prefix_length, const uint8_t* name,
                           int32_t length) noexcept nogil:
    cdef const AccessPermission* permissions = <const AccessPermission*>part(
        table, table.permissions_start)
    cdef int32_t number = <int32_t>(account - accounts_of(table))
    cdef const uint8_t* text
    cdef uint64_t hash
    cdef int32_t at
    if not account.has_permissions:
        return 0
    hash = name_hash_of(number, prefix, prefix_length, name, length)
    at = place_of(hash, table.permission_mask)
    while permissions[at].account >= 0:
        if (permissions[at].hash == hash and permissions[at].account == number
                and permissions[at].name_length == prefix_length + length):
            text = part(table, table.texts_start + permissions[at].name_start)
            if memcmp(text, prefix, prefix_length) == 0 and (
                    memcmp(text + prefix_length, name, length) == 0):
                return permissions[at].bits
        at = (at + 1) & table.permission_mask
    return 0


cdef bint access_is_white(const AccessTable* table, int32_t first, int32_t count,
                          const uint8_t* address, bint is_v6) noexcept nogil:
    cdef const AccessAddress* one = <const AccessAddress*>part(
        table, table.addresses_start) + first
    cdef int32_t i
    cdef uint16_t number
    for i in range(count):
        if one[i].family == 0:
            return True
        if one[i].family != (6 if is_v6 else 4) or memcmp(
                one[i].prefix, address, one[i].prefix_length):
            continue
        if one[i].width == 0:
            return True
        number = address[one[i].prefix_length]
        if one[i].width == 2:
            number = number << 8 | address[one[i].prefix_length + 1]
        if one[i].low <= number <= one[i].high:
            return True
    return False


# -- the coordinator's side --------------------------------------------------------------------------

globals().update(AccessPermissionBits.__members__)


class AccessTableFull(ValueError):
    """The rules have no room; the text says how much they need."""


cdef int32_t places_for(int64_t count) except -1:
    cdef int64_t places = 16
    while places < 2 * count:
        places *= 2
    return <int32_t>places


cdef class _Texts:
    """Texts one behind the other, each once."""
    cdef dict starts
    cdef bytearray joined

    def __init__(self):
        self.starts = {}
        self.joined = bytearray()

    cdef int32_t add(self, bytes text) except -1:
        start = self.starts.get(text)
        if start is None:
            start = self.starts[text] = len(self.joined)
            self.joined += text
        return start


cdef bytearray address_rows(rows):
    cdef AccessAddress row
    made = bytearray()
    for family, prefix, width, low, high in rows:
        row = AccessAddress(family=family, prefix_length=len(prefix), width=width, low=low,
                            high=high)
        memcpy(row.prefix, <const char*>prefix, len(prefix))
        made += (<const char*>&row)[:sizeof(AccessAddress)]
    return made


def build_table(list accounts, list white, *, bint stock_permissions) -> bytes:
    """
    The table as bytes.

    accounts: (access key, secret key, white list, is admin, topic default, group default,
    {name: bits}) each, texts as bytes, bits: AccessPermissionBits; white: the global white list.
    Addresses: (family, prefix, width, low, high), as in AccessAddress.
    """
    cdef AccessTable head
    cdef AccessAccount account
    cdef AccessPermission* permissions
    cdef AccessPermission permission
    cdef int32_t* index
    cdef int32_t number, at, account_places, permission_places
    cdef _Texts texts = _Texts()
    cdef bytearray rows = bytearray(), addresses = address_rows(white)
    account_places = places_for(len(accounts))
    permission_places = places_for(sum([len(one[6]) for one in accounts]))
    index_bytes = bytearray(b"\xff" * (account_places * sizeof(int32_t)))
    permission_bytes = bytearray(permission_places * sizeof(AccessPermission))
    index = <int32_t*><char*>index_bytes
    permissions = <AccessPermission*><char*>permission_bytes
    for at in range(permission_places):
        permissions[at].account = -1
    for number, (key, secret, own, admin, topic_default, group_default, names) in enumerate(accounts):
        account = AccessAccount(
            key_start=texts.add(key), key_length=len(key),
            address_first=<int32_t>(len(addresses) // sizeof(AccessAddress)),
            address_count=len(own), admin=admin, has_permissions=len(names) > 0,
            topic_default=topic_default, group_default=group_default,
            hash=hash_more(HASH_START, key, len(key)) | 1)
        hmac_key(secret, len(secret), <Sha1State*>account.inner, <Sha1State*>account.outer)
        addresses += address_rows(own)
        at = place_of(hash_more(HASH_START, key, len(key)), account_places - 1)
        while index[at] >= 0:
            at = (at + 1) & (account_places - 1)
        index[at] = number
        rows += (<const char*>&account)[:sizeof(AccessAccount)]
        for name, bits in names.items():
            permission = AccessPermission(
                hash=name_hash_of(number, NULL, 0, name, len(name)), account=number,
                name_start=texts.add(name), name_length=len(name), bits=bits)
            at = place_of(permission.hash, permission_places - 1)
            while permissions[at].account >= 0:
                at = (at + 1) & (permission_places - 1)
            permissions[at] = permission
    head = AccessTable(
        account_count=len(accounts), account_mask=account_places - 1,
        permission_mask=permission_places - 1, address_count=len(white),
        stock_permissions=stock_permissions, accounts_start=sizeof(AccessTable))
    head.account_index_start = head.accounts_start + len(rows)
    head.permissions_start = head.account_index_start + len(index_bytes)
    head.addresses_start = head.permissions_start + len(permission_bytes)
    head.texts_start = head.addresses_start + len(addresses)
    head.size = head.texts_start + len(texts.joined)
    return (<const char*>&head)[:sizeof(AccessTable)] + bytes(
        rows + index_bytes + permission_bytes + addresses + texts.joined)


cdef class AccessBoard:
    """The table in shared memory. `write` is the coordinator's alone."""
    cdef Segment segment

    def __init__(self, Segment segment not None):
        self.segment = segment

    @property
    def room(self) -> int:
        """How many bytes it may have; 0: this run has no access control."""
        return self.segment.shm.head.access.capacity

    def write(self, bytes table) -> None:
        """Replace it (AR1). Raises AccessTableFull."""
        cdef Shm* shm = &self.segment.shm
        cdef uint8_t* place = shm.base + shm.head.access.start
        cdef int32_t sequence = shm.head.access_sequence | 1      # odd: a predecessor died in it
        if len(table) > shm.head.access.capacity:
            raise AccessTableFull(f"access rules of {len(table)} bytes: expected at most "
                                  f"{shm.head.access.capacity} (acl.table_bytes_max)")
        if not shm_reserve(shm, place, len(table)):
            raise AccessTableFull(f"/dev/shm has no room for access rules of {len(table)} bytes")
        store_i32_release(&shm.head.access_sequence, sequence)
        release_fence()
        memcpy(place, <const char*>table, len(table))
        store_i32_release(&shm.head.access_sequence, sequence + 1)

    def break_off(self) -> None:
        """For tests: leave the table as a coordinator does that dies while it writes it."""
        cdef Shm* shm = &self.segment.shm
        store_i32_release(&shm.head.access_sequence, shm.head.access_sequence | 1)


cdef class AccessCopy:
    """A table as who checks sees it, for tests."""
    cdef Access access

    def __init__(self, Segment segment not None):
        access_open(&self.access, &segment.shm)

    def __dealloc__(self):
        access_close(&self.access)

    def look(self) -> bool:
        """Whether there are rules."""
        return access_look(&self.access)

    def has(self, bytes key) -> bool:
        """Whether there is such an account."""
        return access_account(self.access.table, key, len(key)) != NULL

    def permission(self, bytes key, bytes prefix, bytes name) -> int:
        """Of an account for a name; 0: none of its own."""
        return access_permission(self.access.table, access_account(self.access.table, key, len(key)),
                                 prefix, len(prefix), name, len(name))

    def is_white(self, bytes address) -> bool:
        """Whether the global white list has it: 4 or 16 bytes."""
        if len(address) not in (ADDRESS_V4_SIZE, ADDRESS_V6_SIZE):
            raise ValueError(f"{len(address)} bytes: expected {ADDRESS_V4_SIZE} or {ADDRESS_V6_SIZE}")
        return access_is_white(self.access.table, 0, self.access.table.address_count, address,
                               len(address) == ADDRESS_V6_SIZE)


def signature_for_test(bytes secret, list parts, bint plain=False) -> bytes:
    """HMAC-SHA1 of joined parts; plain: without the processor's instructions."""
    global sha1_instructions
    cdef Sha1State inner, outer
    cdef Hmac hmac
    cdef uint8_t digest[SHA1_SIZE]
    cdef int found = sha1_instructions
    if plain:
        sha1_instructions = 0
    hmac_key(secret, len(secret), &inner, &outer)
    hmac_begin(&hmac, &inner)
    for one in parts:
        hmac_add(&hmac, <const uint8_t*><const char*>one, len(one))
    hmac_end(&hmac, &outer, digest)
    sha1_instructions = found
    return (<const char*>digest)[:SHA1_SIZE]


def whole_signature_for_test(bytes secret, bytes text, bint plain=False) -> bytes:
    """HMAC-SHA1 of a text in one piece; plain: without the processor's instructions."""
    global sha1_instructions
    cdef Sha1State inner, outer
    cdef uint8_t digest[SHA1_SIZE]
    cdef int found = sha1_instructions
    copied = bytearray(text + b"x" * HMAC_SLACK)
    if plain:
        sha1_instructions = 0
    hmac_key(secret, len(secret), &inner, &outer)
    hmac_whole(&inner, &outer, <uint8_t*><char*>copied, len(text), digest)
    sha1_instructions = found
    return (<const char*>digest)[:SHA1_SIZE]
