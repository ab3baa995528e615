# Which links to a followed log are let in, and the places that they get.
from mqcore.replication.links cimport Link, Master

# A place for a newcomer: a free one, or that of a link that is to make room for it; NULL: there is
# none (master HM7).
cdef Link* place_choice(Master* m, const Link* newcomer) noexcept nogil
# Whether it may say where its log ends (master HM15).
cdef bint link_is_let_in(Master* m, const Link* l) noexcept nogil
