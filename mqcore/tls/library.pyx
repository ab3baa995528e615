"""Finds OpenSSL: the library that the interpreter's own `ssl` works with, else the machine's."""

cdef extern from "<dlfcn.h>" nogil:
    void* dlopen(const char* path, int flags)
    int dlclose(void* handle)
    int RTLD_NOW
    int RTLD_LOCAL

cdef extern from "mq_tls.h" nogil:
    const char* mq_tls_find(void* handle, TlsLibrary* library)

cdef enum:
    VERSION_MIN = 0x10101000           # 1.1.1

SYSTEM_NAMES = ("libssl.so.3", "libssl.so.1.1", "libssl.so")
# where the interpreter's own is looked for: the files that a process has mapped
MAPS = "/proc/self/maps"

cdef TlsLibrary found
cdef bint is_found = False


class TlsLibraryError(OSError):
    """There is no OpenSSL that can be used; the text says what was looked for."""


def candidates() -> list[str]:
    """Paths and names to try, the best first; "" is the process itself, which may contain it."""
    import ssl  # noqa: F401 - loads the library that is looked for

    with open(MAPS) as maps:
        own = [line.split(None, 5)[5].strip() for line in maps if "/libssl" in line]
    return [*dict.fromkeys(own), "", *SYSTEM_NAMES]


cdef const TlsLibrary* tls_library() except NULL:
    global is_found
    if is_found:
        return &found
    tried = []
    for name in candidates():
        raw = name.encode()
        trouble = open_one(raw)
        if trouble is None:
            is_found = True
            return &found
        tried.append(f"{name or 'the interpreter itself'} ({trouble})")
    raise TlsLibraryError("TLS needs OpenSSL 1.1.1 or 3.x (libssl), and none can be used here: "
                          + ", ".join(tried))


cdef object open_one(bytes name):
    """None: it is opened; else what is wrong with it."""
    cdef void* handle = dlopen(<const char*>name if name else NULL, RTLD_NOW | RTLD_LOCAL)
    cdef const char* missing
    if handle == NULL:
        return "not there"
    missing = mq_tls_find(handle, &found)
    if missing == NULL and found.OpenSSL_version_num() >= VERSION_MIN:
        return None
    trouble = f"has no {missing.decode()}" if missing != NULL else "too old"
    dlclose(handle)
    return trouble


def version() -> str:
    """What is used, as it names itself: "OpenSSL 3.0.19 27 Jan 2026". Raises TlsLibraryError."""
    return tls_library().OpenSSL_version(0).decode()
