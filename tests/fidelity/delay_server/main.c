/* Reference server for tests of the load generator. The path selects the delay, the framing or the
 * fault of a response, and a log records the times of each request. Written in C, so that it shares no
 * code and no clock arithmetic with the generator.
 *
 *     delay_server LOG PORT BACKLOG SEED
 *
 * Listens on 127.0.0.1, prints its port, and writes its log on SIGTERM, after it has read all input
 * received by then. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "connection.h"
#include "timers.h"

#define MAX_EVENTS 256

static volatile sig_atomic_t stopping;

static void stop(int signal) {
    (void)signal;
    stopping = 1;
}

static void check(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

static int listen_on(uint16_t port, int backlog) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    check(fd, "socket");
    int on = 1;
    check(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
    /* Connections inherit it. */
    check(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on), "SO_TIMESTAMPNS");
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    check(bind(fd, (struct sockaddr *)&address, size), "bind");
    check(listen(fd, backlog), "listen");
    check(getsockname(fd, (struct sockaddr *)&address, &size), "getsockname");
    printf("%d\n", ntohs(address.sin_port));
    if (fflush(stdout) != 0) check(-1, "stdout");
    return fd;
}

static void accept_all(int epoll, int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EAGAIN || errno == ECONNABORTED)) return;
        check(fd, "accept");
        connection_open(epoll, fd);
    }
}

/* Handles the timers that have expired. Those that expire meanwhile wait for the next turn. */
static void run_timers(void) {
    int64_t until_ns = now_ns();
    struct connection *connection;
    while ((connection = timer_first()) != NULL && connection->due_ns <= until_ns) {
        connection_write(connection);
    }
}

/* Waits for events until the next timer expires, or not at all if the server is to stop, and handles
 * them. Returns true if there were any. */
static bool turn(int epoll, int listener, const sigset_t *while_waiting) {
    struct timespec wait = {0};
    struct connection *next = timer_first();
    if (next != NULL && !stopping) {
        int64_t left_ns = next->due_ns - now_ns();
        if (left_ns > 0) wait = (struct timespec){left_ns / NS_PER_S, left_ns % NS_PER_S};
    }
    bool forever = next == NULL && !stopping;
    struct epoll_event events[MAX_EVENTS];
    int count = epoll_pwait2(epoll, events, MAX_EVENTS, forever ? NULL : &wait, while_waiting);
    if (count < 0 && errno == EINTR) return true;
    check(count, "epoll_pwait2");
    for (int i = 0; i < count; i++) {
        struct connection *connection = events[i].data.ptr;
        if (connection == NULL) {
            accept_all(epoll, listener);
            continue;
        }
        if (events[i].events & EPOLLOUT) connection_write(connection);
        if (connection->fd != -1 && events[i].events & ~(uint32_t)EPOLLOUT) connection_read(connection);
    }
    run_timers();
    return count > 0;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: delay_server LOG PORT BACKLOG SEED\n");
        return 2;
    }
    sigset_t term, none;
    sigemptyset(&none);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    check(sigprocmask(SIG_BLOCK, &term, NULL), "sigprocmask");
    check(sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL), "sigaction");
    check(prctl(PR_SET_TIMERSLACK, 1UL), "PR_SET_TIMERSLACK");
    check(prctl(PR_SET_PDEATHSIG, SIGKILL), "PR_SET_PDEATHSIG");
    log_prepare();
    response_seed(strtoull(argv[4], NULL, 10));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    check(epoll, "epoll_create1");
    int listener = listen_on((uint16_t)strtoul(argv[2], NULL, 10), (int)strtol(argv[3], NULL, 10));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
    while (turn(epoll, listener, &none) || !stopping) {
    }
    log_write(argv[1]);
    return 0;
}
