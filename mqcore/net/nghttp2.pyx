"""Finds nghttp2: the copy in the wheel, else the machine's."""
import os

cdef extern from "<dlfcn.h>" nogil:
    void* dlopen(const char* path, int flags)
    int dlclose(void* handle)
    int RTLD_NOW
    int RTLD_LOCAL

cdef extern from "mq_nghttp2.h" nogil:
    const char* mq_nghttp2_find(void* handle, Nghttp2* library)
    int mq_nghttp2_version(void* handle)

cdef enum:
    VERSION_MIN = 0x012800             # 1.40.0

NAMES = ("libnghttp2.so.14", "libnghttp2.so")
FOLDER = os.path.join(os.path.dirname(__file__), "lib")      # of a copy in the wheel

cdef Nghttp2 found
cdef bint is_found = False
cdef int found_version = 0


class Nghttp2Error(OSError):
    """There is no nghttp2 that can be used; the text says what was looked for."""


cdef const Nghttp2* nghttp2() except NULL:
    global is_found
    if is_found:
        return &found
    tried = []
    for name in (os.path.join(FOLDER, NAMES[0]), *NAMES):
        trouble = open_one(os.fsencode(name))
        if trouble is None:
            is_found = True
            return &found
        tried.append(f"{name} ({trouble})")
    raise Nghttp2Error(
        "grpc.enable: gRPC needs nghttp2 1.40 or later, and none can be used here (Debian, Ubuntu: "
        "apt install libnghttp2-14; Fedora: dnf install libnghttp2): " + ", ".join(tried))


cdef object open_one(bytes name):
    """None: it is opened; else what is wrong with it."""
    global found_version
    cdef void* handle = dlopen(<const char*>name, RTLD_NOW | RTLD_LOCAL)
    cdef const char* missing
    if handle == NULL:
        return "not there"
    missing = mq_nghttp2_find(handle, &found)
    found_version = mq_nghttp2_version(handle)
    if missing == NULL and found_version >= VERSION_MIN:
        return None
    trouble = f"has no {missing.decode()}" if missing != NULL else "too old"
    dlclose(handle)
    return trouble


def version() -> str:
    """The version of the library in use: "1.52.0". Raises Nghttp2Error."""
    nghttp2()
    return f"{found_version >> 16}.{found_version >> 8 & 255}.{found_version & 255}"
