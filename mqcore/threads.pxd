# Threads beside a loop, of native code alone: signals are for the loop's own.
cdef extern from *:
    """
    #include <pthread.h>
    #include <signal.h>
    static inline int mq_thread_begin(pthread_t *thread, void *(*run)(void *), void *argument) {
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      int failed = pthread_create(thread, NULL, run, argument);
      pthread_sigmask(SIG_SETMASK, &before, NULL);
      return failed;
    }
    static inline void mq_thread_end(pthread_t thread) { pthread_join(thread, NULL); }
    """
    ctypedef struct pthread_t:
        pass
    # 0, or the error.
    int thread_begin "mq_thread_begin"(pthread_t* thread, void* (*run)(void*) noexcept nogil,
                                       void* argument) noexcept nogil
    # Waits until it has ended.
    void thread_end "mq_thread_end"(pthread_t thread) noexcept nogil
