# What a frame's body is sent from: memory where the verifier has kept it (verifier.pxd, CK7), else the file.
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from mqcore.replication.verifier cimport LogVerifier, verifier_give_back
from mqcore.replication.greet cimport FRAME_HEAD_SIZE
from mqcore.replication.links cimport LINK_PIECES, Link
from mqcore.replication.wire cimport wire_send_file, wire_write
from mqcore.store.io cimport store_io

cdef enum:
    COPIED_BYTES_MAX = 4096           # from here on sendfile costs less than a copy of what is nowhere in memory


cdef inline void piece_put(LogVerifier* c, Link* l, int piece) noexcept nogil:
    """It follows the link's others; -1: there is none."""
    if piece >= 0 and l.piece_count < LINK_PIECES:
        l.pieces[l.piece_count] = piece
        l.piece_count += 1
    elif piece >= 0:
        verifier_give_back(c, piece)


cdef inline void pieces_drop(LogVerifier* c, Link* l, int64_t position) noexcept nogil:
    """Those that end there, or before."""
    cdef int i
    while l.piece_count and c.kept[l.pieces[0]].end <= position:
        verifier_give_back(c, l.pieces[0])
        l.piece_count -= 1
        for i in range(l.piece_count):
            l.pieces[i] = l.pieces[i + 1]


cdef inline int64_t send_small(LogVerifier* c, Link* l) noexcept nogil:
    """A frame that has not begun, with one call: as link_write; 0: it is not to be read."""
    cdef uint8_t[FRAME_HEAD_SIZE + COPIED_BYTES_MAX] bytes
    cdef int64_t put
    if store_io().read_at(l.file, bytes + FRAME_HEAD_SIZE, l.left, l.position - l.file_base) != l.left:
        return 0
    memcpy(bytes, l.head, FRAME_HEAD_SIZE)
    put = wire_write(l.fd, &l.wire, bytes, FRAME_HEAD_SIZE + l.left, False)
    if put > 0:
        l.head_sent = <int>min(put, <int64_t>FRAME_HEAD_SIZE)
        l.position += put - l.head_sent
        l.left -= put - l.head_sent
        pieces_drop(c, l, l.position)
    return put


cdef inline int64_t send_body(LogVerifier* c, Link* l) noexcept nogil:
    """Of a frame whose head was sent: as link_write; 0: the file ends there."""
    cdef int64_t put, size = l.left
    cdef const uint8_t* bytes = NULL
    pieces_drop(c, l, l.position)
    if l.piece_count and c.kept[l.pieces[0]].start <= l.position:
        bytes = c.kept[l.pieces[0]].bytes + (l.position - c.kept[l.pieces[0]].start)
        size = min(size, c.kept[l.pieces[0]].end - l.position)
        put = wire_write(l.fd, &l.wire, bytes, size, size < l.left)
    else:
        put = wire_send_file(l.fd, &l.wire, l.file, l.position - l.file_base, size)
    if put > 0:
        l.position += put
        l.left -= put
        pieces_drop(c, l, l.position)
    return put
