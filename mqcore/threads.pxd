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

# What such a thread and its loop share is under a lock.
cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* lock, const void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* lock)
    int pthread_mutex_unlock(pthread_mutex_t* lock)
    int pthread_cond_init(pthread_cond_t* condition, const void* attributes)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* lock)
    int pthread_cond_signal(pthread_cond_t* condition)
