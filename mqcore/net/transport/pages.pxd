# The C library keeps what is freed; after a crowd of slow readers that can be much. By itself it would
# give it back with each large buffer, tens of MiB in one call, and take it again for the next one:
# milliseconds in which no peer is served. So it keeps pages until a process gives them back.
cdef extern from *:
    """
    #include <malloc.h>
    static void mq_give_pages_back(void) {
    #ifdef __GLIBC__
      malloc_trim(0);
    #endif
    }
    static void mq_keep_pages(void) {
    #ifdef __GLIBC__
      mallopt(M_MMAP_THRESHOLD, 32 << 20); /* its largest, above a frame: else each is mapped anew */
      mallopt(M_TRIM_THRESHOLD, 64 << 20);
    #endif
    }
    """
    void give_pages_back "mq_give_pages_back"() noexcept nogil
    void keep_pages "mq_keep_pages"() noexcept nogil
