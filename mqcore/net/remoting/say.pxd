# What serving says, as RocketMQ's responses (remoting.md 4.1.1, 4.2.1).
from mqcore.net.identity cimport Identity
from mqcore.net.remoting.frames cimport Remoting
from mqcore.net.requests cimport Front

cdef struct Voice:
    Remoting remoting                  # the first: the front's self is one
    const Identity* identity

# The front that cuts frames and answers in RocketMQ's words.
cdef void remoting_front(Voice* voice, Front* front) noexcept nogil
