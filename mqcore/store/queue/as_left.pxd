# Queues that a start believed by their folders, until somebody has looked at their files.
#
#   Y4  A queue whose left_ns (QueueEntry, ns since 1970 by the wall clock) is not 0 was whole then, and
#       its folder is as it was: no file came, went or changed its name. Its files are looked at before
#       they are used: by the dispatcher before it writes to the queue, and in a pass of its own over
#       all queues; both end the doubt with 0. A reader looks at the file that it reads.
#       The folders above a queue's are compared, too, at the start alone: a run makes folders in them.
#       Where one has changed, a queue with old files may stand in another's place, and its newest
#       entry is held against the log.
#   Y5  Of a queue whose files somebody else has changed nothing is read. The broker stops and starts
#       again; that start looks at the files of all queues, and compares with the log what is younger.
from libc.stdint cimport int64_t

from mqcore.layout cimport QueueEntry


# Whether the queue's folder is there, and no entry of it changed since left_ns.
cdef bint folder_as_left(const char* folder, const QueueEntry* queue, int64_t left_ns) noexcept nogil
# The same of the folders above it: its topic's, and the root of all; in_place as below.
cdef bint topic_as_left(const char* folder, const QueueEntry* queue, int64_t left_ns,
                        bint in_place) noexcept nogil
cdef bint root_as_left(const char* folder, int64_t left_ns, bint in_place) noexcept nogil
# Whether the files of the queue offsets in [least, most) are there, of full size, and not younger than
# left_ns. in_place: by the time of their inodes too, which no copy and no `touch` sets.
cdef bint files_as_left(const char* folder, const QueueEntry* queue, int64_t file_entries,
                        int64_t least, int64_t most, int64_t left_ns, bint in_place) noexcept nogil
# The same of one open file, for a reader; True when the doubt has ended meanwhile.
cdef bint file_as_left(int fd, const QueueEntry* queue, int64_t file_entries) noexcept nogil
# The dispatcher's look before it writes: ends the doubt, or leaves it.
cdef void queue_look(const char* folder, QueueEntry* queue, int64_t file_entries) noexcept nogil
