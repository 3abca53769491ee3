/* Preloaded, adds SKEW_S seconds to the wall clock of a process; other clocks stay.
 * libfaketime 0.9.10 makes time.sleep of Python 3.11 fail, or timed waits never end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t skew(void) {
    static long seconds = -1;
    if (seconds < 0) {
        const char *text = getenv("SKEW_S");
        seconds = text ? atol(text) : 0;
    }
    return seconds;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += skew();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec at;
    int failed = clock_gettime(CLOCK_REALTIME, &at);
    if (!failed) {
        now->tv_sec = at.tv_sec;
        now->tv_usec = at.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *now) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (now) *now = at.tv_sec;
    return at.tv_sec;
}
