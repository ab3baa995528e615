"""The base of what gives records their bit maps (bit_source.pxd)."""


cdef class BitSource:
    """Gives each dispatched record the bit map of its extension unit; subclasses fill `calls`."""
