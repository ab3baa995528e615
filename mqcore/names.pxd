# What may be the name of a queue. It comes from peers, and from logs that others wrote; it becomes a
# folder of the store, and a value among properties.
#
#   O1  A queue's topic is 1 to 127 bytes of UTF-8, neither "." nor "..", without "/", NUL, and the
#       two separators of properties. Nothing else is asked: names of groups are free.
#   O2  A queue's id is 0 to QUEUE_ID_END - 1: no topic may have more queues.
#   O3  The queue table (tables.pxd) takes no illegal name or queue id, so no path contains one. A
#       record with an illegal name stays in the log, without a queue.
#   O4  Every path of a queue is made by open_file_folder or, in Python, by store/paths.py. Both
#       refuse illegal names. A deletion removes only files at such a path, and no foreign file in
#       its folder.
from libc.stdint cimport int32_t, uint8_t

from mqcore.layout cimport PROPERTY_SEPARATOR, QUEUE_ID_END, TOPIC_LENGTH_MAX
from mqcore.text cimport is_digit

cdef extern from *:
    """
    #include <stdint.h>
    /* Whether text is UTF-8: no overlong forms, no surrogates. */
    static inline int mq_is_utf8(const uint8_t *text, int32_t length) {
      int32_t i = 0, more, k;
      uint32_t point;
      while (i < length) {
        uint8_t first = text[i++];
        if (first < 0x80) continue;
        if (first < 0xC2 || first > 0xF4) return 0;
        more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
        if (length - i < more) return 0;
        point = first & (0x3F >> more);
        for (k = 0; k < more; k++, i++) {
          if ((text[i] & 0xC0) != 0x80) return 0;
          point = point << 6 | (text[i] & 0x3F);
        }
        if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return 0;
        if ((more == 2 && point < 0x800) || (more == 3 && point < 0x10000)) return 0;
      }
      return 1;
    }
    """
    bint is_utf8 "mq_is_utf8"(const uint8_t* text, int32_t length) noexcept nogil


cdef inline bint is_folder_name(const uint8_t* name, int32_t length) noexcept nogil:      # O1
    cdef int32_t i
    if not 1 <= length <= TOPIC_LENGTH_MAX:
        return False
    if length <= 2 and name[0] == c'.' and name[length - 1] == c'.':
        return False
    for i in range(length):
        if name[i] == c'/' or name[i] <= PROPERTY_SEPARATOR:
            return False
    return is_utf8(name, length)


cdef inline bint is_queue_place(const uint8_t* topic, int32_t length,
                                int32_t queue_id) noexcept nogil:
    return 0 <= queue_id < QUEUE_ID_END and is_folder_name(topic, length)                 # O2


cdef inline bint is_topic_name(const uint8_t* name, int32_t length) noexcept nogil:
    """What producers may send to (broker.md 9.1: %|a-zA-Z0-9_-): part of what O1 lets pass."""
    cdef int32_t i
    cdef uint8_t c
    if not 1 <= length <= TOPIC_LENGTH_MAX:
        return False
    for i in range(length):
        c = name[i]
        if not (is_digit(c) or c'A' <= c <= c'Z' or c'a' <= c <= c'z'
                or c == c'%' or c == c'|' or c == c'_' or c == c'-'):
            return False
    return True
