/* Measures how late this machine wakes a thread: sleeps until COUNT times with a gap of GAP_US and
 * records by how much it missed each. A process of its own, so that nothing else keeps its caches warm.
 *
 *     sleeper GAP_US COUNT
 *
 * Prints one lateness in nanoseconds per line, after the last time or on SIGTERM. A time that has passed
 * is counted without a sleep, so that a long disturbance counts for all times that it covers. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "delay_server/clock.h"

#define MAX_COUNT 500000

static volatile sig_atomic_t stopping;
static int64_t lateness_ns[MAX_COUNT];

static void stop(int signal) {
    (void)signal;
    stopping = 1;
}

int main(int argc, char **argv) {
    int64_t gap_ns = argc == 3 ? strtoll(argv[1], NULL, 10) * NS_PER_US : 0;
    int64_t count = argc == 3 ? strtoll(argv[2], NULL, 10) : 0;
    if (gap_ns <= 0 || count <= 0 || count > MAX_COUNT) {
        fprintf(stderr, "usage: sleeper GAP_US COUNT, with a COUNT of at most %d\n", MAX_COUNT);
        return 2;
    }
    if (sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL) != 0 ||
        prctl(PR_SET_TIMERSLACK, 1UL) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        perror("sleeper");
        return 1;
    }
    int64_t start_ns = now_ns();
    int64_t slept = 0;
    while (slept < count && !stopping) {
        int64_t target_ns = start_ns + (slept + 1) * gap_ns;
        struct timespec target = {target_ns / NS_PER_S, target_ns % NS_PER_S};
        int result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &target, NULL);
        if (result == EINTR) continue;
        lateness_ns[slept++] = now_ns() - target_ns;
    }
    for (int64_t i = 0; i < slept; i++) printf("%" PRId64 "\n", lateness_ns[i]);
    return fflush(stdout) == 0 ? 0 : 1;
}
