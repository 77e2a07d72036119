#define _GNU_SOURCE
#include "connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"
#include "timers.h"

#define FILLERS_AT_ONCE 255

static struct connection connections[MAX_CONNECTIONS] = {[0 ... MAX_CONNECTIONS - 1] = {.fd = -1}};
static uint64_t accepted;
static int epoll_fd;

static void fail(const char *what) {
    fprintf(stderr, "delay_server: %s\n", what);
    exit(1);
}

static void watch(struct connection *connection, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(epoll_fd, operation, connection->fd, &event) != 0) fail("epoll_ctl failed");
}

void connection_open(int epoll, int fd) {
    epoll_fd = epoll;
    struct connection *connection = connections;
    struct connection *end = connections + MAX_CONNECTIONS;
    while (connection < end && connection->fd != -1) connection++;
    if (connection == end) fail("too many connections");
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail("TCP_NODELAY failed");
    memset(connection, 0, offsetof(struct connection, input));
    connection->fd = fd;
    connection->serial = ++accepted;
    watch(connection, EPOLL_CTL_ADD, EPOLLIN);
}

static void release(struct connection *connection) {
    timer_cancel(connection);
    close(connection->fd);
    connection->fd = -1;
}

static struct pending *first(struct connection *connection) {
    return &connection->pending[connection->first];
}

/* Sets the timer of the first pending response. A response that is never sent delays those behind it. */
static void schedule(struct connection *connection) {
    if (connection->count == 0 || first(connection)->response.outcome == OUTCOME_SILENT) return;
    const struct response *response = &first(connection)->response;
    int64_t from_ns = first(connection)->record->read_ns;
    if (response->in_turn && connection->written_ns > from_ns) from_ns = connection->written_ns;
    timer_set(connection, from_ns + response->delay_ns);
}

static void request(struct connection *connection, const char *path, int64_t arrived_ns, int64_t read_ns) {
    struct record *record = log_request(connection->serial, arrived_ns, read_ns);
    if (connection->closing) {
        record->outcome = OUTCOME_IGNORED;
        return;
    }
    if (connection->count == MAX_PENDING) fail("too many pipelined requests");
    struct response response = response_for(path, log_length() - 1, ++connection->requests);
    record->outcome = response.outcome;
    size_t place = (connection->first + connection->count++) % MAX_PENDING;
    connection->pending[place] = (struct pending){.response = response, .record = record};
    if (connection->count == 1) schedule(connection);
}

/* Takes complete requests out of the input. They have no bodies. */
static void take_requests(struct connection *connection, int64_t arrived_ns, int64_t read_ns) {
    char *rest = connection->input;
    char *end_of_input = connection->input + connection->received;
    char *end;
    while ((end = memmem(rest, (size_t)(end_of_input - rest), "\r\n\r\n", 4)) != NULL) {
        *end = '\0';
        char path[256];
        if (sscanf(rest, "%*15s %255s", path) != 1) fail("a request has no path");
        request(connection, path, arrived_ns, read_ns);
        rest = end + 4;
    }
    connection->received = (size_t)(end_of_input - rest);
    memmove(connection->input, rest, connection->received);
}

/* Returns the arrival of the last packet of what was read. The kernel stamps it with CLOCK_REALTIME. */
static int64_t arrival_ns(struct msghdr *message, int64_t read_ns) {
    struct cmsghdr *control = CMSG_FIRSTHDR(message);
    if (control == NULL || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_TIMESTAMPNS) {
        fail("a packet has no timestamp");
    }
    struct timespec stamp, now;
    memcpy(&stamp, CMSG_DATA(control), sizeof stamp);
    clock_gettime(CLOCK_REALTIME, &now);
    return read_ns - (in_ns(now) - in_ns(stamp));
}

void connection_read(struct connection *connection) {
    size_t room = MAX_REQUEST_BYTES - connection->received;
    if (room == 0) fail("request too long");
    struct iovec input = {.iov_base = connection->input + connection->received, .iov_len = room};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct timespec))];
    struct msghdr message = {
        .msg_iov = &input, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(connection->fd, &message, 0);
    int64_t read_ns = now_ns();
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        release(connection);
        return;
    }
    connection->received += (size_t)got;
    take_requests(connection, arrival_ns(&message, read_ns), read_ns);
}

static void finish(struct connection *connection) {
    struct pending *done = first(connection);
    connection->written_ns = done->record->written_ns;
    connection->sent = 0;
    connection->first = (connection->first + 1) % MAX_PENDING;
    connection->count--;
    if (done->response.end == END_RESET) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        int set = setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        if (set != 0) fail("SO_LINGER failed");
        release(connection);
    } else if (done->response.end == END_CLOSE) {
        /* Shuts down this side only: a close with unread input would reset the connection. */
        connection->closing = true;
        while (connection->count > 0) {
            first(connection)->record->outcome = OUTCOME_IGNORED;
            connection->first = (connection->first + 1) % MAX_PENDING;
            connection->count--;
        }
        if (shutdown(connection->fd, SHUT_WR) != 0) release(connection);
    } else {
        schedule(connection);
    }
}

static struct iovec part(const char *bytes, size_t length) {
    return (struct iovec){.iov_base = (char *)bytes, .iov_len = length};
}

/* Writes the next part of the response: a single byte if it pauses between bytes. */
static ssize_t write_some(struct connection *connection, const struct response *response) {
    struct iovec parts[FILLERS_AT_ONCE + 1];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1};
    if (connection->sent < response->length) {
        parts[0] = part(response->bytes + connection->sent, response->length - connection->sent);
    } else {
        size_t filler = strlen(response->filler);
        size_t skip = (connection->sent - response->length) % filler;
        parts[0] = part(response->filler + skip, filler - skip);
        while (message.msg_iovlen <= FILLERS_AT_ONCE) {
            parts[message.msg_iovlen++] = part(response->filler, filler);
        }
    }
    if (response->pause_ns != 0) {
        message.msg_iovlen = 1;
        parts[0].iov_len = 1;
    }
    return sendmsg(connection->fd, &message, MSG_NOSIGNAL);
}

void connection_write(struct connection *connection) {
    timer_cancel(connection);
    if (connection->waits_for_room) watch(connection, EPOLL_CTL_MOD, EPOLLIN);
    connection->waits_for_room = false;
    const struct response *response = &first(connection)->response;
    bool endless = response->filler != NULL;
    while (endless || connection->sent < response->length) {
        int64_t before_ns = now_ns();
        ssize_t wrote = write_some(connection, response);
        if (wrote < 0 && errno == EAGAIN) {
            watch(connection, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            connection->waits_for_room = true;
            return;
        }
        if (wrote < 0) {
            release(connection);
            return;
        }
        first(connection)->record->written_ns = before_ns;
        connection->sent += (size_t)wrote;
        /* A response without an end yields to other connections after each write. */
        if (endless || (response->pause_ns != 0 && connection->sent < response->length)) {
            timer_set(connection, before_ns + response->pause_ns);
            return;
        }
    }
    finish(connection);
}
