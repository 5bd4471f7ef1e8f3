/* thread.h: a handle's own thread. No signal handler of the embedding program ever runs on it. */
#ifndef COMMON_THREAD_H
#define COMMON_THREAD_H

#include <pthread.h>
#include <signal.h>

/* All signals are blocked in the new thread. Returns 0 or an errno. */
static inline int thread_start(pthread_t *ret, void *(*run)(void *), void *arg)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(ret, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
