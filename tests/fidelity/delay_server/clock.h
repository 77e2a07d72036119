/* Clock of the server: CLOCK_MONOTONIC in nanoseconds. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_US INT64_C(1000)
#define NS_PER_S INT64_C(1000000000)

static inline int64_t in_ns(struct timespec time) { return time.tv_sec * NS_PER_S + time.tv_nsec; }

static inline int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return in_ns(now);
}

#endif
